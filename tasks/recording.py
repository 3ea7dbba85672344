"""Prefect task that ends every run: update catalog and MLflow from the store."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks import projections


@task(name="record", cache_policy=NO_CACHE, persist_result=False)
def record_study(home: str, study: str) -> dict[str, int]:
    """Record a study; return the number of its cells by status."""
    return projections.record(Path(home), study)
