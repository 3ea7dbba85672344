"""`lce worker`: a pull loop over studies without Prefect. Any number of workers may run at once."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from rich.console import Console

from flows.locking import meet_lock
from flows.plans.plugin_changes import meet_plugin_changes
from flows.plans.pricing import places_here
from flows.request import compile_request
from flows.runs.run_progress import RunProgress
from flows.runs.scheduling import Answer, Stop, Submit, run_units
from flows.runs.threads import in_threads
from flows.selection import require_models, select_cells
from flows.terminal import Terminal
from flows.work import Work, work_of
from lce_core import formats
from lce_core.errors import StepsFailedError, StudyIncompleteError, WorkerLostError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failures import disk_full
from lce_core.study.units import Unit
from tasks import projections
from tasks.agenda import Taken
from tasks.board import BOARD
from tasks.fresh_catalog import catalog_kept_fresh
from tasks.mending import mend_projections
from tasks.slots import Slot
from tasks.workers import close_pools

LINE_SECONDS = 60.0
"""Interval between progress lines while no unit starts or finishes."""


def pull_studies(
    studies: Sequence[str],
    execution: Execution,
    *,
    select: str = "",
    retry_failed: bool = False,
    waits: bool = True,
    grace: float = 0.0,
    accept_plugin_change: bool = False,
) -> None:
    """Compute the missing steps of these studies until none is left, then record the studies.

    Steps that another worker holds are left to that worker.

    Args:
      studies: names of shipped studies, or paths of study files. Units of the first come first.
      execution: settings of the computation.
      select: "axis=value,..." to compute only these cells of each study.
      retry_failed: retry steps that failed permanently.
      waits: whether to wait for steps that other workers hold once nothing else is left, and to
        take over the steps of workers that die. If False, other workers record the studies.
      grace: seconds that running units have to finish after SIGTERM.
      accept_plugin_change: declare plug-ins that changed under one VERSION equal to what ran.

    Raises:
      SpecError: if a request is wrong; nothing was started.
      StoreError: if the disk is full.
      StudyIncompleteError: if some cells failed, in this run or an earlier one.
      KeyboardInterrupt: after SIGTERM; the leases were released.
    """
    tell = Terminal(highlight=False, soft_wrap=True, markup=False)
    requests = [compile_request(study, execution) for study in studies]
    for request in requests:
        require_models(request.plan, execution)
        wanted = select_cells(request.plan, select)
        meet_plugin_changes(wanted, execution, accept=accept_plugin_change)
    works = [work_of(request, select, retry_failed=retry_failed) for request in requests]
    names = [request.plan.study.study for request in requests]
    for request in requests:
        if note := meet_lock(request, Store(execution.home)):
            tell.print(note)
    # Several workers may run on one host, so the process id is part of the name.
    host = f"{socket.gethostname()} {os.getpid()}"
    units = [unit for work in works for unit in work.ordered(host)]
    seconds = {print_: one for work in works for print_, one in work.seconds.items()}
    done = {print_ for work in works for print_ in work.done}
    mend_projections(execution.home)
    BOARD.reset()
    lines = Lines(tell, works, execution)
    lines.say(f"{', '.join(names)}: {lines.progress}, {len(units):,} units to do")
    with stopped_by_sigterm(grace) as stop, ExitStack() as pools:
        if units:
            pools.enter_context(catalog_kept_fresh(execution.home))
        pools.callback(close_pools)
        submit = lines.told(in_threads(execution, stop), stop)
        tally = run_units(units, done, execution, lines, submit, seconds, waits=waits, stop=stop)
    if stop.is_set():
        lines.say("asked to end: what was begun is given back")
        raise KeyboardInterrupt
    if tally.disk_full:
        raise disk_full(execution.home, tally.disk_full)
    if tally.held:
        left = f"{len(tally.held):,} units are left to others"
        lines.say(f"{left}; {BOARD.computed:,} steps computed")
    else:
        for name in names:
            counts = projections.record(execution.home, name)
            cells = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
            lines.say(f"{name}: {BOARD.computed} steps computed; cells: {cells}")
    failures = {unit: why for work in works for unit, why in work.failed_before.items()}
    failures |= tally.failures
    if failures:
        raise StudyIncompleteError(", ".join(names), failures, len(tally.blocked))


class Lines:
    """Print a log line whenever a unit starts or finishes. For runs without a live view.

    Args:
      tell: console that receives the lines.
      works: the work of each study.
      execution: settings of the computation.
    """

    def __init__(self, tell: Console, works: Sequence[Work], execution: Execution) -> None:
        self._tell, self._lock, self._last = tell, threading.Lock(), time.monotonic()
        units = [unit for work in works for unit in work.units]
        predicted = {name: one for work in works for name, one in work.predicted.items()}
        num_cells = sum(len(work.wanted.cells) for work in works)
        self.progress = RunProgress(units, predicted, num_cells, places_here(execution), BOARD)

    def say(self, line: str) -> None:
        """Print a line with the current time. May be called from several threads."""
        # A failed write to the log, for example on a full disk, must not end the run.
        with self._lock, suppress(OSError):
            self._last = time.monotonic()
            self._tell.print(f"{time.strftime('%H:%M:%S')} {line}")

    def told(self, submit: Submit, stop: Stop) -> Submit:
        """Wrap `submit` so that it prints a line when a unit starts and when it finishes."""

        def told(taken: Taken, slot: Slot, end: Callable[[Answer], None]) -> None:
            begun, where = time.monotonic(), f" on GPU {', '.join(slot.gpus)}" if slot.gpus else ""
            self.say(f"begins {taken.unit.name}{where}{' (a part)' * taken.shared}")

            def ended(answer: Answer) -> None:
                is_given_back = stop.is_set() and isinstance(answer, WorkerLostError)
                outcome = "gave back" if is_given_back else _outcome(answer)
                took = formats.duration(time.monotonic() - begun)
                try:
                    self.say(f"ended  {taken.unit.name} in {took}: {outcome}")
                finally:
                    end(answer)

            submit(taken, slot, ended)

        return told

    def finish(self, unit: Unit) -> None:
        """Record that all steps of the unit are done."""
        self.progress.end(unit)

    def refresh(self) -> None:
        """Print the progress if nothing was printed for `LINE_SECONDS`."""
        if time.monotonic() - self._last > LINE_SECONDS:
            running = "; ".join(f"{name}: {line}" for name, line in BOARD.running().items())
            what = running or "all that is left is computed by others"
            self.say(f"{self.progress}, {self.progress.time}  {what}")

    def show(self, text: str) -> None:
        """Print a text without adding the time."""
        self._tell.print(text)

    def close(self) -> None:
        """Do nothing: this display holds no resources."""


@contextmanager
def stopped_by_sigterm(grace: float) -> Iterator[Stop]:
    """Yield a `Stop` that SIGTERM sets; Slurm and Kubernetes send it before they kill a job."""
    stop = Stop(grace)
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def _outcome(answer: Answer) -> str:
    if isinstance(answer, StepsFailedError):
        return f"failed, {answer.reason}"
    if isinstance(answer, BaseException):
        return f"failed, {answer}"
    counts = {"computed": answer["computed"], "there": answer["existing"]}
    counts["left to others"] = len(answer["held"])
    return ", ".join(f"{number} {what}" for what, number in counts.items() if number)
