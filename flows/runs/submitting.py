"""Submit units as tasks of the running Prefect flow."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterable
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

Future = PrefectFuture[dict[str, Any]]


class PrefectTasks:
    """The tasks of a flow run. Each names those whose results it reads, as its upstream tasks.

    The scheduler submits a unit only when its inputs are done, so no task waits for an upstream
    task. Prefect's graph of the flow run then has the edges of the plan.
    """

    def __init__(self) -> None:
        self._producers: dict[str, Future] = {}
        """The completed task that computed a step, by the step's fingerprint."""
        self._read: set[str] = set()

    def submit(self, pool: Pool, tracker: ProgressTracker) -> Submit:
        """Return a function that submits a unit as a Prefect task; call it inside the flow."""

        @cache
        def task_named(name: str) -> UnitTask:
            return unit_task(name, pool, tracker)

        def submit(claim: Claim, slot: Slot, end: Callable[[UnitResult], None]) -> None:
            unit = claim.unit

            def settle(future: Future) -> None:
                result = _result(future)
                if not unit.assists and not isinstance(result, BaseException):
                    self._producers |= dict.fromkeys(unit.outputs, future)
                end(result)

            task = task_named(kind_named(unit.kind).submitted_as)
            inputs = self._of(unit.needs)
            self._read |= unit.needs
            arguments = (unit.to_json(), slot.to_json(), claim.shared)
            future = task.submit(*arguments, return_state=False, wait_for=inputs)
            future.add_done_callback(settle)

        return submit

    @property
    def last(self) -> list[Future]:
        """Completed tasks whose results no other task reads."""
        return self._of(self._producers.keys() - self._read)

    def _of(self, steps: Iterable[str]) -> list[Future]:
        futures = [self._producers[step] for step in steps if step in self._producers]
        return list({future.task_run_id: future for future in futures}.values())


def _result(future: PrefectFuture[Any]) -> UnitResult:
    try:
        result: UnitResult = future.result(raise_on_failure=False)
    except CancelledError as error:  # the run was interrupted; raising would print a traceback
        return error
    return result
