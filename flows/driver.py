"""Compute a run: `lce run`, `lce worker` and the Prefect deployment all call `drive`.

They differ in how they submit units (as Prefect tasks or in threads), in their display and in how
they record results.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from flows.run_context import RunContext
from flows.runs.scheduling import RunSummary, Scheduler, Stop, Submit
from flows.settings import mlflow_server
from lce_core.errors import StudyIncompleteError
from lce_core.store.failures import disk_full
from tasks.fresh_catalog import catalog_kept_fresh
from tasks.tracking.live import shown_live

if TYPE_CHECKING:
    from flows.runs.display import Display


def drive(
    run: RunContext,
    submit: Submit,
    display: Display,
    *,
    host: str,
    tracks_training: bool = False,
    waits: bool = True,
    stop: Stop | None = None,
) -> RunSummary:
    """Compute all units of a run, and meanwhile update the catalog with finished cells.

    `host`, the unique name of this process, decides the order of equally expensive units, so that
    processes which start at the same time claim different units. Without `waits`, leave steps that
    other processes are computing to them. Raises the errors of `Scheduler.run`.
    """
    home = run.execution.home
    units = [unit for work in run.works for unit in work.ordered(host)]
    seconds = {name: one.seconds for name, one in run.predicted.items()}
    with ExitStack() as stack:
        for work in run.works if tracks_training else ():
            if work.trains:
                stack.enter_context(shown_live(home, work.wanted.study.study, mlflow_server(home)))
        if units:
            stack.enter_context(catalog_kept_fresh(home))
        pool = stack.enter_context(run.pool)
        stack.callback(display.close)
        scheduler = Scheduler(
            units, run.done, pool, display, submit, seconds, waits=waits, stop=stop
        )
        summary = scheduler.run()
    if summary.disk_full and not (stop and stop.is_set()):
        raise disk_full(home, summary.disk_full)
    return summary


def require_complete(run: RunContext, summary: RunSummary) -> None:
    if failures := {**run.failed_before, **summary.failures}:
        raise StudyIncompleteError(", ".join(run.names), failures, len(summary.abandoned))
