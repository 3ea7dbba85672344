"""Prefect tasks of a run: one for each unit, and one that ends the run."""

from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.logging import get_run_logger

from lce_core.study.units import Unit
from tasks import projections, units
from tasks.run_progress import RunProgress
from tasks.slots import Slot
from tasks.workers import Pool

UnitTask = Task[[Unit, Slot, bool], dict[str, Any]]


def unit_task(name: str, pool: Pool, progress: RunProgress) -> UnitTask:
    """Return a Prefect task of this name that calls `units.compute` with the run's workers.

    Prefect's cache is off: the store already keeps each result under a fingerprint.
    """

    def compute(unit: Unit, slot: Slot, shared: bool) -> dict[str, Any]:
        logger = get_run_logger()
        logger.info("computing %s: %s", name, _counted(len(unit.steps), "step"))
        result = units.compute(pool, progress, unit, slot, shared)
        existing = _counted(result["existing"], "result")
        logger.info("%s computed; %s existed", _counted(result["computed"], "step"), existing)
        return result

    return task(
        name=name,
        task_run_name="{unit.name}",
        cache_policy=NO_CACHE,
        persist_result=False,
        refresh_cache=False,
        log_prints=False,
        retries=pool.execution.max_attempts - 1,
        retry_delay_seconds=units.DELAY_SECONDS,
        retry_condition_fn=_is_retried,
    )(compute)


# This must be a plain function: given a partial or a method, Prefect silently never retries.
def _is_retried(task: Task[Any, Any], task_run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001
    return units.is_retried(state.result(raise_on_failure=False))


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
    return projections.record(Path(home), study, mlflow)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s'[: number != 1]}"
