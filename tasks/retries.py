"""Retry policy of units: which failures are retried, how often and after how long.

A unit is retried if a step failed with a transient error (`lce_core.store.failures.RETRIED`), or if
its worker died, up to `Execution.max_attempts`. Prefect applies this policy to its tasks;
`with_retries` applies it without Prefect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from lce_core.errors import StepsFailedError, WorkerLostError
from lce_core.store.failures import RETRIED

if TYPE_CHECKING:
    from prefect import Task
    from prefect.client.schemas.objects import State, TaskRun

DELAY_SECONDS = [1.0, 10.0, 60.0]
"""Delays before the first, the second and every further retry; the default is two retries."""

Result = TypeVar("Result")


def is_retried(error: object) -> bool:
    if isinstance(error, StepsFailedError):
        return any(event["class"] in RETRIED for event in error.failed)
    return isinstance(error, WorkerLostError)


def with_retries(compute: Callable[[], Result], max_attempts: int, stop: threading.Event) -> Result:
    """Call `compute` until it succeeds, at most `max_attempts` times.

    Raises its error in the last attempt, if it is not transient, or if `stop` is set.
    """
    attempt = 1
    while True:
        try:
            return compute()
        except (StepsFailedError, WorkerLostError) as error:
            delay = DELAY_SECONDS[min(attempt, len(DELAY_SECONDS)) - 1]
            if attempt == max_attempts or not is_retried(error) or stop.wait(delay):
                raise
            attempt += 1


def prefect_options(max_attempts: int) -> dict[str, Any]:
    """Return options of `prefect.task` that retry as `with_retries` does."""
    return {
        "retries": max_attempts - 1,
        "retry_delay_seconds": DELAY_SECONDS,
        "retry_condition_fn": _is_retried_by_prefect,
    }


# This must be a plain function: given a partial or a method, Prefect silently never retries.
def _is_retried_by_prefect(
    task: Task[Any, Any],  # noqa: ARG001
    task_run: TaskRun,  # noqa: ARG001
    state: State[Any],
) -> bool:
    return is_retried(state.result(raise_on_failure=False))
