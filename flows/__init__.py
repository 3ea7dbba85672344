"""Plan, schedule and show runs, and start their servers; `tasks` and `lce_core` compute."""
