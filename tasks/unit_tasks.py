"""Units of work as Prefect tasks."""

from __future__ import annotations

from functools import cache
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from tasks import units

UnitTask = Task[[dict[str, Any], dict[str, Any], dict[str, Any], bool], dict[str, Any]]


# This must be a plain function: given a partial or a method, Prefect silently never retries.
def may_pass(task: Task[Any, Any], task_run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001
    """Return True if the failure of a task run is transient and worth a retry."""
    return units.may_pass(state.result(raise_on_failure=False))


@cache
def unit_task(name: str) -> UnitTask:
    """Return `units.compute` as the Prefect task of this name, with retries by failure class.

    The store is the cache. Prefect's cache policies collide between tasks and omit inputs that a
    key needs, so the task uses none.
    """
    return task(
        name=name,
        task_run_name="{unit[name]}",
        retries=len(units.RETRY_DELAYS),
        retry_delay_seconds=units.RETRY_DELAYS,
        retry_condition_fn=may_pass,
        cache_policy=NO_CACHE,
        persist_result=False,
    )(units.compute)
