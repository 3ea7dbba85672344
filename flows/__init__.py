"""Plan, schedule and display the runs of studies, and start the servers that a run needs.

The computation itself is in `tasks` (workers, leases, MLflow) and `lce_core`.
"""
