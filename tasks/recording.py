"""Prefect task that ends every run: update catalog and MLflow from the store."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks import projections


@task(
    name="record",
    task_run_name="update catalog and MLflow",
    cache_policy=NO_CACHE,
    persist_result=False,
    refresh_cache=False,
    retries=0,
    retry_delay_seconds=0,
    log_prints=False,
)
def record_study(home: str, study: str, mlflow: str | None) -> dict[str, int]:
    """Update catalog and MLflow from the store; return the study's number of cells by status."""
    return projections.record(Path(home), study, mlflow)
