"""The Prefect flow `controlled-study`: submit a study's missing steps, then record the results.

Only the store decides which steps are missing; Prefect's records do not matter.
"""

import socket
import sys
from asyncio import CancelledError
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

from prefect import flow
from prefect.futures import PrefectFuture
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.task_runners import ThreadPoolTaskRunner

from flows.looking import look
from flows.run_context import CURRENT, RunContext, drive, require_complete
from flows.runs.display import (
    ArtifactDisplay,
    FirstSeedDisplay,
    TerminalDisplay,
    publish_results,
)
from flows.runs.interrupts import interrupted_when_cancelled, is_deployed, sigterm_interrupts
from flows.runs.scheduling import Display, Submit, UnitResult
from flows.settings import make_execution, mlflow_server
from flows.terminal import Terminal
from flows.work import RunOptions, preflight
from lce_core.store import records
from lce_core.study.step_kinds import kind_named
from tasks.run_progress import RunProgress
from tasks.slots import Slot
from tasks.unit_tasks import record_study, unit_task
from tasks.work_queue import Claim
from tasks.workers import Pool

Future = PrefectFuture[dict[str, Any]]
MOST_SLOTS = 256
"""Threads of Prefect's task runner, more than any number of slots."""


def _run_name() -> str:
    """Return what distinguishes a run from others of the same study: its cells and its code."""
    parameters = flow_run.parameters
    settings = (parameters.get(name) for name in ("study", "select", "budget"))
    commit = records.environment()["git"]["commit"]
    return ", ".join(filter(None, (*settings, commit and commit[:8])))


@flow(
    name="controlled-study",
    flow_run_name=_run_name,
    task_runner=ThreadPoolTaskRunner(max_workers=MOST_SLOTS),  # type: ignore[arg-type]
    # Prefect would take what is not stated here from the user's settings for other flows.
    persist_result=False,
    retries=0,
    retry_delay_seconds=0,
    log_prints=False,
)
def controlled_study(
    study: str = "toy",
    select: str = "",
    execution: dict[str, Any] | None = None,
    retry_failed: bool = False,
    budget: str = "",
) -> dict[str, Any]:
    """Compute a study's missing steps, then update the catalog and MLflow.

    Args:
      study: name of a shipped study, or path of a study file.
      select: "axis=value,..." to compute only cells with these values; empty for all cells.
      execution: fields of `lce_core.execution.Execution` that differ from this machine's defaults.
      retry_failed: True to retry steps that failed permanently (a loss or score was not finite).
      budget: "8gpuh", "100cpuh" or "2h" to compute only the blocks that this budget pays for
        (`flows.plans.budget`); empty for no limit.

    Returns:
      The study's name, the number of cells by status, and the number of steps this run computed.

    Raises:
      SpecError: if the study or a parameter is wrong.
      StoreError: if the disk is full.
      StudyIncompleteError: if some cells failed.
    """
    with sigterm_interrupts():
        run = CURRENT.get()
        if run is None:
            options = RunOptions(select, retry_failed, budget)
            run = RunContext(preflight([study], make_execution(execution), options))
            for note in run.works[0].notes:
                get_run_logger().warning(note)
        outcome = run.outcome
        try:
            with interrupted_when_cancelled(outcome):
                outcome.result = _compute(run)
        except BaseException as error:
            outcome.error = error
            raise
        return outcome.result


def _compute(run: RunContext) -> dict[str, Any]:
    (work,) = run.works
    for attempt in work.swept:
        get_run_logger().info("removed the unfinished attempt %s", attempt)
    if work.chosen:
        get_run_logger().info("\n".join(work.chosen))
    home, tasks = run.execution.home, PrefectTasks()
    while True:
        (work,) = run.works
        progress, console = run.progress, Terminal(file=sys.stderr)
        shown: Display = (
            ArtifactDisplay(progress) if is_deployed() else TerminalDisplay(progress, console)
        )
        display = FirstSeedDisplay(shown, work.wanted, work.units, home)
        submit = tasks.submit(run.pool, progress)
        summary = drive(run, submit, display, host=socket.gethostname(), tracks_training=True)
        if not look(run, _tell):
            break
    study = work.wanted.study.study
    counts = record_study(str(home), study, mlflow_server(home), wait_for=tasks.last)
    if is_deployed():
        publish_results(study, home)
    require_complete(run, summary)
    return {"study": study, "computed": run.computed, "cells": counts}


def _tell(line: str) -> None:
    if is_deployed():
        get_run_logger().info(line)
    else:
        Terminal(file=sys.stderr).print(line, markup=False, highlight=False, soft_wrap=True)


class PrefectTasks:
    """The tasks of a flow run. Each names those whose results it reads, as its upstream tasks.

    The scheduler submits a unit only when its inputs are done, so no task waits for an upstream
    task. Prefect's graph of the flow run then has the edges of the plan.
    """

    def __init__(self) -> None:
        self._producers: dict[str, Future] = {}
        """The completed task that computed a step, by the step's fingerprint."""
        self._read: set[str] = set()

    def submit(self, pool: Pool, progress: RunProgress) -> Submit:
        task_named = cache(partial(unit_task, pool=pool, progress=progress))

        def submit(claim: Claim, slot: Slot, end: Callable[[UnitResult], None]) -> None:
            unit = claim.unit

            def settle(future: Future) -> None:
                try:
                    result: UnitResult = future.result(raise_on_failure=False)
                except CancelledError as error:
                    result = error  # the run was interrupted; raising would print a traceback
                if not unit.assists and not isinstance(result, BaseException):
                    self._producers |= dict.fromkeys(unit.outputs, future)
                end(result)

            task = task_named(kind_named(unit.kind).submitted_as)
            inputs = self._of(unit.needs)
            self._read |= unit.needs
            future = task.submit(unit, slot, claim.shared, return_state=False, wait_for=inputs)
            future.add_done_callback(settle)

        return submit

    @property
    def last(self) -> list[Future]:
        return self._of(self._producers.keys() - self._read)

    def _of(self, steps: Iterable[str]) -> list[Future]:
        futures = [self._producers[step] for step in steps if step in self._producers]
        return list({future.task_run_id: future for future in futures}.values())
