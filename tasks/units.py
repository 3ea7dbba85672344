"""What all computing has in common: a unit goes to a worker; failures come back by class."""

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
"""Seconds before each further attempt; what passes by itself (I/O, NCCL) needs some time."""


def compute(
    unit: dict[str, Any],
    execution: dict[str, Any],
    slot: dict[str, Any],
    shared: bool = False,
) -> dict[str, Any]:
    """Computes the steps of a unit on a slot that was taken; returns what is small and JSON.

    Args:
      unit: `Unit.to_json`; of one that assists nothing is shown or noted.
      execution: how to compute, as JSON.
      slot: `Slot.to_json`, of this process's pool.
      shared: as in `Worker.run`.

    Returns:
      The unit's name, numbers of computed and existing steps, and the fingerprints of those that
      other processes hold and that were left to them.

    Raises:
      StepsFailedError: some steps failed; the others are done and stay done, or are held.
      WorkerLostError: the worker died.
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
        # The worker could not say why it died: most often the kernel took it for want of memory.
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
    """True for failures that may pass (out of memory, I/O, a lost worker), by failure class."""
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
    """`compute`, tried again after what may pass, as Prefect's task does; until `stop` is set.

    Raises:
      What `compute` raises at the last attempt.
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
