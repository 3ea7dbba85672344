"""The flow `controlled-study`: plan first, submit only what is missing, then record.

A study that is done is one task. What is computed is decided by the store alone; Prefect
schedules, retries and shows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from prefect import flow
from prefect.logging import get_run_logger
from prefect.runtime import deployment
from prefect.task_runners import ThreadPoolTaskRunner
from rich.console import Console

from flows.display import ArtifactDisplay, Display, TerminalDisplay
from flows.interrupts import sigterm_interrupts
from flows.pricing import prices_of
from flows.request import request_for
from flows.run_progress import RunProgress
from flows.scheduling import run_units
from flows.selection import require_work, select_cells
from flows.settings import disk_full, make_execution
from lce_core.errors import StudyIncompleteError
from lce_core.store.artifacts import Store, folders_of
from lce_core.study.plan import StudyPlan
from lce_core.study.progress import StepState, inspect
from lce_core.study.units import units_to_do
from tasks.board import BOARD
from tasks.recording import record_study
from tasks.workers import close_pools

MOST_SLOTS = 256
"""Upper limit of units at a time in one process; the real limit is the number of slots."""


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
) -> dict[str, Any]:
    """Computes what is missing of a study and brings catalog and MLflow up to date.

    Args:
      study: a shipped study's name, or the path of a study file.
      select: "axis=value,..." to compute only these cells; all others stay as they are.
      execution: keys of `lce_core.execution.Execution` that differ from this machine's defaults.
      retry_failed: try again what failed for good (a loss or score that is not finite).

    Returns:
      Numbers of cells by status, and how many steps this run computed.

    Raises:
      SpecError: the request is wrong.
      StoreError: the disk is full.
      StudyIncompleteError: cells failed.
    """
    how = make_execution(execution)
    request = request_for(study, how)
    plan, spec, where = request.plan, request.plan.study, request.where
    require_work(plan, where)
    store = Store(how.home)
    store.prepare()
    for attempt in store.sweep():
        get_run_logger().info("removed the unfinished attempt %s", attempt)
    store.save_plan(spec.study, plan.to_json(), where)
    wanted = select_cells(plan, select)
    settings = how.model_dump(mode="json")
    states = inspect(wanted, store, folders_of(settings), retry_failed=retry_failed)
    units = units_to_do(wanted, states)
    done = {print_ for print_, state in states.items() if state.state == "done"}
    BOARD.reset()
    steps = [step for unit in units for step in unit.steps]
    predicted = prices_of(wanted, states, how).predicted(steps, how.processes) if steps else {}
    display = _display(RunProgress(units, predicted, len(wanted.cells), how.slots, BOARD))
    try:
        with sigterm_interrupts():
            tally = run_units(units, done, how, display)
    finally:
        display.close()
        close_pools()
    if tally.disk_full:
        raise disk_full(how.home, tally.disk_full)
    counts = record_study(str(how.home), spec.study)
    failures = {**_failed_before(wanted, states), **tally.failures}
    if failures:
        raise StudyIncompleteError(spec.study, failures, len(tally.blocked))
    return {"study": spec.study, "computed": BOARD.computed, "cells": counts}


def _failed_before(plan: StudyPlan, states: Mapping[str, StepState]) -> dict[str, str]:
    """Steps that an earlier run left failed for good, with their reasons."""
    remedy = "not tried again; --retry-failed does"
    return {
        f"{step.kind} {step.name}": f"{states[step.fingerprint].reason} ({remedy})"
        for step in plan.steps.values()
        if states[step.fingerprint].state == "failed"
        and all(states[parent].state != "failed" for parent in step.parents.values())
    }


def _display(progress: RunProgress) -> Display:
    if deployment.id:
        return ArtifactDisplay(progress)
    return TerminalDisplay(progress, Console(file=sys.stderr))
