"""Submit units as tasks of the running Prefect flow."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from functools import cache
from typing import Any

from prefect.futures import PrefectFuture

from flows.runs.scheduling import Submit, UnitResult
from lce_core.study.step_kinds import kind_named
from tasks.progress_tracker import ProgressTracker
from tasks.slots import Slot
from tasks.unit_tasks import UnitTask, unit_task
from tasks.work_queue import Claim
from tasks.workers import Pool


def through_prefect(pool: Pool, tracker: ProgressTracker) -> Submit:
    """Return a function that submits a unit as a Prefect task; call it inside a flow."""

    @cache
    def task_named(name: str) -> UnitTask:
        return unit_task(name, pool, tracker)

    def submit(claim: Claim, slot: Slot, end: Callable[[UnitResult], None]) -> None:
        task = task_named(kind_named(claim.unit.kind).submitted_as)
        future = task.submit(claim.unit.to_json(), slot.to_json(), claim.shared)
        future.add_done_callback(lambda done: end(_result(done)))

    return submit


def _result(future: PrefectFuture[Any]) -> UnitResult:
    try:
        result: UnitResult = future.result(raise_on_failure=False)
    except CancelledError as error:  # the run was interrupted; raising would print a traceback
        return error
    return result
