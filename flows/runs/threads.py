"""Compute units in threads of this process, without Prefect."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from flows.runs.scheduling import Submit, UnitResult
from tasks.progress_tracker import ProgressTracker
from tasks.retries import with_retries
from tasks.slots import Slot
from tasks.units import compute
from tasks.work_queue import Claim
from tasks.workers import Pool


def in_threads(pool: Pool, tracker: ProgressTracker, stop: threading.Event) -> Submit:
    """Return a function that computes a unit in a new thread, with retries until `stop`."""
    max_attempts = pool.execution.max_attempts

    def submit(claim: Claim, slot: Slot, end: Callable[[UnitResult], None]) -> None:
        unit, slot_json = claim.unit.to_json(), slot.to_json()
        attempt = partial(compute, pool, tracker, unit, slot_json, claim.shared)

        def run() -> None:
            try:
                result: UnitResult = with_retries(attempt, max_attempts, stop)
            except BaseException as error:  # noqa: BLE001 - the scheduler records it for the unit
                result = error
            end(result)

        # A daemon thread, so that an interrupted process can exit without waiting for it.
        threading.Thread(target=run, daemon=True).start()

    return submit
