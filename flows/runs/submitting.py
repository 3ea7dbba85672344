"""Submit units as tasks of the running Prefect flow."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from typing import Any

from prefect.futures import PrefectFuture

from flows.runs.scheduling import Answer, Submit
from lce_core.execution import Execution
from lce_core.study.step_kinds import kind_named
from tasks.agenda import Taken
from tasks.slots import Slot
from tasks.unit_tasks import unit_task


def through_prefect(execution: Execution) -> Submit:
    """Return a function that submits units to the calling flow's task runner.

    Prefect retries transient failures, at most `execution.max_attempts` times in total.
    """
    settings = execution.model_dump(mode="json")

    def submit(taken: Taken, slot: Slot, end: Callable[[Answer], None]) -> None:
        task = unit_task(kind_named(taken.unit.kind).submitted_as)
        task = task.with_options(retries=execution.max_attempts - 1)
        future = task.submit(taken.unit.to_json(), settings, slot.to_json(), taken.shared)
        future.add_done_callback(lambda done: end(_answer(done)))

    return submit


def _answer(future: PrefectFuture[Any]) -> Answer:
    try:
        answer: Answer = future.result(raise_on_failure=False)
    except CancelledError as error:  # an interrupted run; raising it here would print a traceback
        return error
    return answer
