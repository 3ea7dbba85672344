"""The flow `controlled-study`: plan, submit only the missing steps, then record.

For a study that is done only the recording task runs. The store alone decides which steps are
missing; Prefect schedules, retries and displays.
"""

from __future__ import annotations

import socket
import sys
from contextlib import nullcontext
from typing import Any

from prefect import flow
from prefect.logging import get_run_logger
from prefect.task_runners import ThreadPoolTaskRunner

from flows.locking import meet_lock
from flows.plans.pricing import places_here
from flows.request import request_for
from flows.runs.cancelled import interrupted_when_cancelled
from flows.runs.deployed import is_deployed
from flows.runs.display import ArtifactDisplay, Display, TerminalDisplay
from flows.runs.first_seed import FirstSeedDisplay
from flows.runs.interrupts import sigterm_interrupts
from flows.runs.outcome import outcome_told
from flows.runs.run_progress import RunProgress
from flows.runs.scheduling import run_units
from flows.runs.submitting import through_prefect
from flows.settings import make_execution
from flows.terminal import Terminal
from flows.work import work_of
from lce_core.errors import StudyIncompleteError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failures import disk_full
from tasks.board import BOARD
from tasks.fresh_catalog import catalog_kept_fresh
from tasks.mending import mend_projections
from tasks.recording import record_study
from tasks.tracking.live import shown_live
from tasks.workers import close_pools

MOST_SLOTS = 256
"""Upper limit of concurrent units in one process; the number of slots is the actual limit."""


@flow(
    name="controlled-study",
    flow_run_name="{study}",
    task_runner=ThreadPoolTaskRunner(max_workers=MOST_SLOTS),  # type: ignore[arg-type]
    persist_result=False,
)
def controlled_study(
    study: str = "toy",
    select: str = "",
    execution: dict[str, Any] | None = None,
    retry_failed: bool = False,
    budget: str = "",
) -> dict[str, Any]:
    """Compute what is missing of a study and update the catalog and MLflow.

    Args:
      study: name of a shipped study, or path of a study file.
      select: "axis=value,..." to compute only these cells; all others stay as they are.
      execution: keys of `lce_core.execution.Execution` that differ from this machine's defaults.
      retry_failed: retry steps that failed permanently (a loss or score that is not finite).
      budget: "8gpuh", "100cpuh" or "2h" to compute only the blocks that the budget pays for. A
        block covers all methods.

    Returns:
      The study's name, the number of cells by status, and the number of steps this run computed.

    Raises:
      SpecError: if the request is wrong.
      StoreError: if the disk is full.
      StudyIncompleteError: if cells failed.
    """
    with outcome_told() as outcome:
        how = make_execution(execution)
        with sigterm_interrupts(), interrupted_when_cancelled(outcome):
            outcome.result = _compute(study, select, how, retry_failed, budget)
    return outcome.result


def _compute(
    study: str, select: str, how: Execution, retry_failed: bool, budget: str
) -> dict[str, Any]:
    request = request_for(study, how)
    work = work_of(request, select, retry_failed=retry_failed, budget=budget)
    name = request.plan.study.study
    for attempt in work.swept:
        get_run_logger().info("removed the unfinished attempt %s", attempt)
    # `lce run` has already printed this note at the terminal.
    if is_deployed() and (met := meet_lock(request, Store(how.home))):
        get_run_logger().warning(met)
    if work.chosen:
        get_run_logger().info("\n".join(work.chosen))
    mend_projections(how.home)
    BOARD.reset()
    num_cells = len(work.wanted.cells)
    progress = RunProgress(work.units, work.predicted, num_cells, places_here(how), BOARD)
    display = FirstSeedDisplay(_display(progress), work.wanted, work.units, how.home)
    units, submit = work.ordered(socket.gethostname()), through_prefect(how)
    live = shown_live(how.home, name) if work.trains else nullcontext()
    catalog = catalog_kept_fresh(how.home) if units else nullcontext()
    with live, catalog:
        try:
            tally = run_units(units, work.done, how, display, submit, work.seconds)
        finally:
            display.close()
            close_pools()
    if tally.disk_full:
        raise disk_full(how.home, tally.disk_full)
    counts = record_study(str(how.home), name)
    failures = {**work.failed_before, **tally.failures}
    if failures:
        raise StudyIncompleteError(name, failures, len(tally.blocked))
    return {"study": name, "computed": BOARD.computed, "cells": counts}


def _display(progress: RunProgress) -> Display:
    if is_deployed():
        return ArtifactDisplay(progress)
    return TerminalDisplay(progress, Terminal(file=sys.stderr))
