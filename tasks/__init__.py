"""Compute units in worker processes, as Prefect tasks or without; update catalog and MLflow."""
