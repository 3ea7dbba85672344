"""Plan, schedule and display the runs of studies, and start the servers that a run needs.

The computation itself is in `tasks` (workers, GPU leases, MLflow) and `lce_core` (the steps).
"""
