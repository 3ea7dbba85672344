"""Parts of a run: scheduling of units, live display, results table, and interruption."""
