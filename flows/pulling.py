"""`lce worker`: one pull loop over studies, beside any number of others, without Prefect."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from rich.console import Console

from flows.keeping.locking import meet_lock
from flows.plans.plugin_changes import meet_plugin_changes
from flows.plans.pricing import places_here
from flows.request import compile_request
from flows.runs.run_progress import RunProgress
from flows.runs.scheduling import Answer, Stop, Submit, run_units
from flows.runs.threads import in_threads
from flows.selection import require_models, select_cells
from flows.terminal import Terminal
from flows.work import Work, work_of
from lce_core.errors import StepsFailedError, StudyIncompleteError, WorkerLostError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failures import disk_full
from lce_core.study.pricing.time_left import spoken
from lce_core.study.units import Unit
from tasks import projections
from tasks.agenda import Taken
from tasks.board import BOARD
from tasks.fresh_catalog import catalog_kept_fresh
from tasks.mending import mend_projections
from tasks.slots import Slot
from tasks.workers import close_pools

LINE_SECONDS = 60.0
"""Between two lines of progress while nothing else is to be said."""


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
    """Computes what nobody else computes of these studies until nothing is left, then records them.

    Args:
      studies: shipped studies' names, or paths; units of the first come first.
      execution: how to compute.
      select: only these cells of each.
      retry_failed: try again what failed for good.
      waits: whether to wait for what others compute once nothing else is left, and to take it over
        if they die. Without it others record the studies.
      grace: seconds that units have to end after SIGTERM.
      accept_plugin_change: declare plug-ins that changed under one VERSION equal to what ran.

    Raises:
      SpecError: a request is wrong; nothing was started.
      StoreError: the disk is full.
      StudyIncompleteError: some cells failed, here or in an earlier run.
      KeyboardInterrupt: after SIGTERM; leases were given back.
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
    # Several may run on one host.
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
    """What a run says where nobody watches: a line for whatever begins, ends or is left to others.

    Args:
      tell: where.
      works: what is to do.
      execution: how.
    """

    def __init__(self, tell: Console, works: Sequence[Work], execution: Execution) -> None:
        self._tell, self._lock, self._last = tell, threading.Lock(), time.monotonic()
        units = [unit for work in works for unit in work.units]
        predicted = {name: one for work in works for name, one in work.predicted.items()}
        num_cells = sum(len(work.wanted.cells) for work in works)
        self.progress = RunProgress(units, predicted, num_cells, places_here(execution), BOARD)

    def say(self, line: str) -> None:
        """Prints a line with the time."""
        # A log that cannot be written, such as one on a full disk, ends no run.
        with self._lock, suppress(OSError):
            self._last = time.monotonic()
            self._tell.print(f"{time.strftime('%H:%M:%S')} {line}")

    def told(self, submit: Submit, stop: Stop) -> Submit:
        """The same, with a line before and after each unit."""

        def told(taken: Taken, slot: Slot, end: Callable[[Answer], None]) -> None:
            begun, where = time.monotonic(), f" on GPU {', '.join(slot.gpus)}" if slot.gpus else ""
            self.say(f"begins {taken.unit.name}{where}{' (a part)' * taken.shared}")

            def ended(answer: Answer) -> None:
                is_given_back = stop.is_set() and isinstance(answer, WorkerLostError)
                outcome = "gave back" if is_given_back else _outcome(answer)
                took = spoken(time.monotonic() - begun)
                try:
                    self.say(f"ended  {taken.unit.name} in {took}: {outcome}")
                finally:
                    end(answer)

            submit(taken, slot, ended)

        return told

    def finish(self, unit: Unit) -> None:
        """Nothing of the unit is left."""
        self.progress.end(unit)

    def refresh(self) -> None:
        """Prints how far it is, now and then."""
        if time.monotonic() - self._last > LINE_SECONDS:
            running = "; ".join(f"{name}: {line}" for name, line in BOARD.running().items())
            what = running or "all that is left is computed by others"
            self.say(f"{self.progress}, {self.progress.time}  {what}")

    def show(self, text: str) -> None:
        """Prints it as it is."""
        self._tell.print(text)

    def close(self) -> None:
        """Nothing is open."""


@contextmanager
def stopped_by_sigterm(grace: float) -> Iterator[Stop]:
    """A `Stop` that SIGTERM sets, which Slurm and Kubernetes send some time before they kill."""
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
