"""The pure core of the controlled study: specs, identity, store, methods, training, scoring.

Imports neither Prefect nor MLflow nor DuckDB, and reads no environment variable: whatever a
machine decides comes in through `lce_core.execution.Execution`.
"""
