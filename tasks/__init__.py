"""Prefect tasks and the plain functions, worker processes and projections behind them."""
