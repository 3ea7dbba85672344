"""A run in progress: scheduling of units, live display, results table, interruption."""
