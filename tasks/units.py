"""Compute a unit, whether in a Prefect task or in a thread; report and retry its failures.

A unit is retried if a step failed with a transient error (`lce_core.store.failures.RETRIED`), or if
its worker died, up to `Execution.max_attempts`. Prefect applies this policy to its tasks;
`with_retries` applies it without Prefect.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from lce_core.errors import StepsFailedError, WorkerLostError
from lce_core.store.artifacts import Store
from lce_core.store.failures import RETRIED
from lce_core.study.units import Unit
from tasks.run_progress import RunProgress
from tasks.slots import Slot
from tasks.workers import Pool

DELAY_SECONDS = [1.0, 10.0, 60.0]
"""Delays before the first, the second and every further retry; the default is two retries."""

Result = TypeVar("Result")


def compute(
    pool: Pool,
    progress: RunProgress,
    unit: Unit,
    slot: Slot,
    shared: bool = False,
) -> dict[str, Any]:
    """Compute the steps of a unit on a slot that was claimed from `pool`.

    A unit that `assists` only computes parts of another worker's step, which shows the progress and
    records failures. With `shared`, other processes compute steps of the unit as well. The result
    has numbers of steps computed here ("computed") and found ("existing"), and fingerprints of
    steps that other processes are computing ("held").
    """
    name, assists = unit.name, unit.assists
    try:
        ended = pool.run(
            slot,
            unit.steps,
            lambda event: None if assists else progress.publish(name, event),
            shared=shared,
            assists=assists,
        )
    except WorkerLostError as error:
        # A dead worker cannot report its error: record the failure for the step that was running.
        # Most often the kernel's OOM killer ended the worker.
        for step in unit.steps:
            if step.fingerprint == error.fingerprint and not assists:
                execution = pool.execution.model_dump(mode="json")
                Store(pool.execution.home).failures.add(step, error, execution)
        raise
    finally:
        progress.finish(name)
    failed = [event for event in ended if event["status"] == "failed"]
    held = [event["fingerprint"] for event in ended if event["status"] == "held"]
    if failed:
        some_failed = StepsFailedError(name, failed)
        some_failed.held = tuple(held)
        raise some_failed
    computed = sum(event["status"] == "computed" for event in ended)
    existing = len(ended) - computed - len(held)
    return {"computed": computed, "existing": existing, "held": held}


def is_retried(error: object) -> bool:
    if isinstance(error, StepsFailedError):
        return any(event["class"] in RETRIED for event in error.failed)
    return isinstance(error, WorkerLostError)


def with_retries(compute: Callable[[], Result], max_attempts: int, stop: threading.Event) -> Result:
    """Call `compute` until it succeeds, fails permanently or `stop` is set."""
    attempt = 1
    while True:
        try:
            return compute()
        except (StepsFailedError, WorkerLostError) as error:
            delay = DELAY_SECONDS[min(attempt, len(DELAY_SECONDS)) - 1]
            if attempt == max_attempts or not is_retried(error) or stop.wait(delay):
                raise
            attempt += 1
