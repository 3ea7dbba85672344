"""What all computing tasks have in common: a unit goes to a worker; failures come back by class."""

from __future__ import annotations

from functools import cache
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from lce_core.errors import StepsFailedError, WorkerLostError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failures import RETRIED
from lce_core.store.steps import Step
from tasks.board import BOARD
from tasks.workers import pool_for

RETRY_DELAYS = [1.0, 10.0, 60.0]
"""Seconds before each further attempt; what passes by itself (I/O, NCCL) needs some time."""


def compute(unit: dict[str, Any], execution: dict[str, Any]) -> dict[str, Any]:
    """Computes the steps of a unit on the next free slot; returns counts, small and JSON.

    Raises:
      StepsFailedError: some steps failed; the others are done and stay done.
      WorkerLostError: the worker died.
    """
    name = unit["name"]
    steps = [Step(**payload) for payload in unit["steps"]]
    pool = pool_for(Execution.model_validate(execution))
    try:
        ended = pool.run(steps, lambda event: BOARD.post(name, event))
    except WorkerLostError as error:
        # The worker could not say why it died: most often the kernel took it for want of memory.
        for step in steps:
            if step.fingerprint == error.fingerprint:
                Store(pool.execution.home).note_failure(step, error, execution)
        raise
    finally:
        BOARD.finish(name)
    failed = [event for event in ended if event["status"] == "failed"]
    if failed:
        raise StepsFailedError(name, failed)
    computed = sum(event["status"] == "computed" for event in ended)
    return {"unit": name, "computed": computed, "existing": len(ended) - computed}


# A plain function: Prefect silently never retries when given a partial or a method.
def may_pass(task: Task[Any, Any], task_run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001
    """True for failures that may pass (out of memory, I/O, a lost worker), by failure class."""
    error = state.result(raise_on_failure=False)
    if isinstance(error, StepsFailedError):
        return any(event["class"] in RETRIED for event in error.failed)
    return isinstance(error, WorkerLostError)


@cache
def unit_task(name: str) -> Task[[dict[str, Any], dict[str, Any]], dict[str, Any]]:
    """`compute` as the Prefect task of this name, with retries by failure class.

    The store is the cache: Prefect's stock policies collide between tasks and miss what a key
    needs, so none is used.
    """
    return task(
        name=name,
        task_run_name="{unit[name]}",
        retries=len(RETRY_DELAYS),
        retry_delay_seconds=RETRY_DELAYS,
        retry_condition_fn=may_pass,
        cache_policy=NO_CACHE,
        persist_result=False,
    )(compute)
