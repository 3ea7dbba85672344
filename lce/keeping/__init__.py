"""`lce verify`, `export`, `pack` and the like: commands that work on stored results."""
