"""`lce verify`, `prompt`, `export` and `gc`: commands that work on stored results."""
