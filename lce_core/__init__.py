"""Core of lce: study files, plans, the store on disk, methods, training and scoring.

This package imports neither Prefect nor MLflow nor DuckDB and reads no environment variable.
Callers pass the settings of the machine as a `lce_core.execution.Execution`.
"""
