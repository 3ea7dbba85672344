"""Compute work units in worker processes, with or without Prefect; update catalog and MLflow."""
