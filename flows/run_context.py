"""A run: the state that its parts share, and `drive`, which computes it.

`lce run`, `lce worker` and the Prefect deployment all call `drive`. They differ in how they submit
units (as Prefect tasks or in threads), in their display and in how they record results.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from contextvars import ContextVar

from flows.plans.pricing import slots_here
from flows.runs.scheduling import Display, Outcome, RunSummary, Scheduler, Stop, Submit
from flows.settings import mlflow_server
from flows.work import Work
from lce_core.errors import StudyIncompleteError
from lce_core.store.failures import disk_full
from lce_core.study.pricing.calibration import Predicted
from lce_core.study.units import Unit
from tasks.fresh_catalog import catalog_kept_fresh
from tasks.run_progress import RunProgress
from tasks.slots import is_training
from tasks.tracking.live import shown_live
from tasks.workers import Pool


class RunContext:
    """A run of one or several studies; the units of the first study come first."""

    def __init__(self, works: Sequence[Work]) -> None:
        self.execution = works[0].request.execution
        self.start(works)
        self.outcome = Outcome()
        self.computed = 0
        """Number of steps that this run's workers have computed in all stages."""

    def start(self, works: Sequence[Work]) -> None:
        """Set the work of each study, and create workers for it; used again after a look."""
        self.works, self.pool = tuple(works), Pool(self.execution)
        wanted = [cell for work in works for cell in work.wanted.cells]
        cells = [cell.step.fingerprint if cell.step else None for cell in wanted]
        slots = slots_here(self.execution)
        self.progress = RunProgress(self.units, self.predicted, cells, self.done, slots)

    @property
    def names(self) -> list[str]:
        return [work.wanted.study.study for work in self.works]

    @property
    def units(self) -> list[Unit]:
        return [unit for work in self.works for unit in work.units]

    @property
    def predicted(self) -> dict[str, Predicted]:
        return {name: one for work in self.works for name, one in work.predicted.items()}

    @property
    def done(self) -> set[str]:
        states = (one for work in self.works for one in work.states.items())
        return {fingerprint for fingerprint, state in states if state.state == "done"}


# Prefect validates and records a flow's parameters, so `lce run` cannot pass a RunContext as one.
# `lce run` resets the variable after the flow, so that a later run in the same process cannot get
# an old plan.
CURRENT: ContextVar[RunContext | None] = ContextVar("run", default=None)
"""The run that `lce run` prepared; None in a deployment."""


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
            if any(is_training(unit.kind) for unit in work.units):
                stack.enter_context(shown_live(home, work.wanted.study.study, mlflow_server(home)))
        if units:
            stack.enter_context(catalog_kept_fresh(home))
        pool = stack.enter_context(run.pool)
        stack.callback(display.close)
        scheduler = Scheduler(
            units, run.done, pool, display, submit, seconds, waits=waits, stop=stop
        )
        summary = scheduler.run()
    run.computed += run.progress.computed
    if summary.disk_full and not (stop and stop.is_set()):
        raise disk_full(home, summary.disk_full)
    return summary


def require_complete(run: RunContext, summary: RunSummary) -> None:
    before = {step: why for work in run.works for step, why in work.failed_before.items()}
    if failures := {**before, **summary.failures}:
        raise StudyIncompleteError(", ".join(run.names), failures, len(summary.abandoned))
