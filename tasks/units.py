"""Compute a unit and report its failures. Shared by Prefect tasks and threads."""

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
    """Compute the steps of a unit on a claimed slot; return how many were computed.

    Args:
      pool: the run's workers.
      tracker: receives the worker's progress.
      unit: `Unit.to_json`. If `Unit.assists` is set, the unit helps with a step of another worker;
        only that worker shows progress and records failures.
      slot: `Slot.to_json`, claimed from `pool`.
      shared: as in `Worker.run`.

    Returns:
      The unit's name, the number of steps computed here, the number that existed already, and the
      fingerprints of the steps that other processes are computing ("held").

    Raises:
      StepsFailedError: if some steps failed. The other steps are done, or held by other processes.
      WorkerLostError: if the worker died.
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
            if step.fingerprint == error.fingerprint and not (pool.is_closed or assists):
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
