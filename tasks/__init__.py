"""Prefect tasks and what they run: each a thin wrapper round a plain function of the core."""
