"""Compute a unit on a worker and classify its failures. Shared by Prefect tasks and threads."""

from __future__ import annotations

import threading
from typing import Any

from lce_core.errors import StepsFailedError, WorkerLostError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failures import RETRIED
from lce_core.store.steps import Step
from tasks.board import BOARD
from tasks.slots import Slot
from tasks.workers import pool_for

RETRY_DELAYS = [1.0, 10.0, 60.0]
"""Seconds before each retry. Transient failures (I/O, NCCL) need some time to pass."""


def compute(
    unit: dict[str, Any],
    execution: dict[str, Any],
    slot: dict[str, Any],
    shared: bool = False,
) -> dict[str, Any]:
    """Compute the steps of a unit on a claimed slot; return a small JSON result.

    Args:
      unit: `Unit.to_json`. A helping unit (`Unit.assists`) neither shows progress nor records
        failures.
      execution: settings of the computation, as JSON.
      slot: `Slot.to_json`, claimed from this process's pool.
      shared: as in `Worker.run`.

    Returns:
      The unit's name, the numbers of computed and of existing steps, and the fingerprints of the
      steps that other processes hold and compute.

    Raises:
      StepsFailedError: if some steps failed. The other steps are done, or held by other processes.
      WorkerLostError: if the worker died.
    """
    name, assists = unit["name"], unit["assists"]
    steps = [Step(**payload) for payload in unit["steps"]]
    pool = pool_for(Execution.model_validate(execution))
    place = Slot.from_json(slot)
    try:
        ended = pool.run(
            place,
            steps,
            lambda event: None if assists else BOARD.post(name, event),
            shared=shared,
            assists=assists,
        )
    except WorkerLostError as error:
        # A dead worker cannot report the cause. Most often the kernel's OOM killer ended it, so
        # record the failure for the step that was running.
        for step in steps:
            if step.fingerprint == error.fingerprint and not (pool.is_closed or assists):
                Store(pool.execution.home).failures.add(step, error, execution)
        raise
    finally:
        BOARD.finish(name)
    failed = [event for event in ended if event["status"] == "failed"]
    held = [event["fingerprint"] for event in ended if event["status"] == "held"]
    if failed:
        some_failed = StepsFailedError(name, failed)
        some_failed.held = tuple(held)
        raise some_failed
    computed = sum(event["status"] == "computed" for event in ended)
    existing = len(ended) - computed - len(held)
    return {"unit": name, "computed": computed, "existing": existing, "held": held}


def may_pass(error: object) -> bool:
    """Return True for failures of a transient class (out of memory, I/O, lost worker)."""
    if isinstance(error, StepsFailedError):
        return any(event["class"] in RETRIED for event in error.failed)
    return isinstance(error, WorkerLostError)


def compute_with_retries(
    unit: dict[str, Any],
    execution: dict[str, Any],
    slot: dict[str, Any],
    shared: bool,
    stop: threading.Event,
) -> dict[str, Any]:
    """Run `compute` and retry transient failures, as Prefect's task does, until `stop` is set.

    Raises:
      Any error that `compute` raises in the last attempt.
    """
    attempt = 1
    while True:
        try:
            return compute(unit, execution, slot, shared)
        except (StepsFailedError, WorkerLostError) as error:
            delay = RETRY_DELAYS[min(attempt, len(RETRY_DELAYS)) - 1]
            if attempt == execution["max_attempts"] or not may_pass(error) or stop.wait(delay):
                raise
            attempt += 1
