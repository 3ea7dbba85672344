"""Compute a unit, whether in a Prefect task or in a thread, and report its failures."""

from __future__ import annotations

from typing import Any

from lce_core.errors import StepsFailedError, WorkerLostError
from lce_core.store.artifacts import Store
from lce_core.store.steps import Step
from tasks.progress_tracker import ProgressTracker
from tasks.slots import Slot
from tasks.workers import Pool


def compute(
    pool: Pool,
    tracker: ProgressTracker,
    unit: dict[str, Any],
    slot: dict[str, Any],
    shared: bool = False,
) -> dict[str, Any]:
    """Compute the steps of a unit on a slot that was claimed from `pool`; both are JSON.

    A unit that `assists` only computes parts of another worker's step, which shows the progress and
    records failures. With `shared`, other processes compute steps of the unit as well.

    Returns:
      The unit's name ("unit"), numbers of steps computed here ("computed") and found ("existing"),
        and fingerprints of steps that other processes are computing ("held").

    Raises:
      StepsFailedError: if some steps failed. The other steps are done, or held by other processes.
      WorkerLostError: if the worker died.
      RunEndedError: if the run ended before the unit.
    """
    name, assists = unit["name"], unit["assists"]
    steps = [Step(**payload) for payload in unit["steps"]]
    try:
        ended = pool.run(
            Slot.from_json(slot),
            steps,
            lambda event: None if assists else tracker.publish(name, event),
            shared=shared,
            assists=assists,
        )
    except WorkerLostError as error:
        # A dead worker cannot report its error: record the failure for the step that was running.
        # Most often the kernel's OOM killer ended the worker.
        for step in steps:
            if step.fingerprint == error.fingerprint and not assists:
                execution = pool.execution.model_dump(mode="json")
                Store(pool.execution.home).failures.add(step, error, execution)
        raise
    finally:
        tracker.finish(name)
    failed = [event for event in ended if event["status"] == "failed"]
    held = [event["fingerprint"] for event in ended if event["status"] == "held"]
    if failed:
        some_failed = StepsFailedError(name, failed)
        some_failed.held = tuple(held)
        raise some_failed
    computed = sum(event["status"] == "computed" for event in ended)
    existing = len(ended) - computed - len(held)
    return {"unit": name, "computed": computed, "existing": existing, "held": held}
