"""Submit units as tasks of the running Prefect flow."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from functools import cache
from typing import Any

from prefect.futures import PrefectFuture

from flows.runs.scheduling import Answer, Submit
from lce_core.study.step_kinds import kind_named
from tasks.agenda import Taken
from tasks.progress_tracker import ProgressTracker
from tasks.slots import Slot
from tasks.unit_tasks import UnitTask, unit_task
from tasks.workers import Pool


def through_prefect(pool: Pool, tracker: ProgressTracker) -> Submit:
    """Return a function that submits units to the calling flow's task runner."""

    @cache
    def task_named(name: str) -> UnitTask:
        return unit_task(name, pool, tracker)

    def submit(taken: Taken, slot: Slot, end: Callable[[Answer], None]) -> None:
        task = task_named(kind_named(taken.unit.kind).submitted_as)
        future = task.submit(taken.unit.to_json(), slot.to_json(), taken.shared)
        future.add_done_callback(lambda done: end(_answer(done)))

    return submit


def _answer(future: PrefectFuture[Any]) -> Answer:
    try:
        answer: Answer = future.result(raise_on_failure=False)
    except CancelledError as error:  # an interrupted run; raising it here would print a traceback
        return error
    return answer
