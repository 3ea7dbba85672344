"""`lce worker`: compute studies without Prefect. Several such workers can share a store."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from rich.console import Console

from flows.looking import look
from flows.run_context import RunContext, drive, require_complete
from flows.runs.scheduling import Stop, Submit, UnitResult
from flows.settings import mlflow_server
from flows.terminal import ProcessEnd, Terminal
from flows.work import RunOptions, preflight
from lce_core import formats
from lce_core.errors import StepsFailedError, WorkerLostError
from lce_core.execution import Execution
from lce_core.study.units import Unit
from tasks.run_progress import RunProgress
from tasks.slots import Slot
from tasks.units import compute, with_retries
from tasks.work_queue import Claim
from tasks.workers import Pool

LINE_SECONDS = 60.0
"""Pause between progress lines while no unit starts or finishes."""


def pull_studies(
    studies: Sequence[str],
    execution: Execution,
    options: RunOptions,
    *,
    waits: bool = True,
    grace: float = 0.0,
    end: ProcessEnd | None = None,
) -> None:
    """Compute the missing steps of these studies, then update the catalog and MLflow.

    With `waits`, wait for steps that other workers are computing, and take over the steps of
    workers that die. Without it, the last worker updates the catalog and MLflow. Running units have
    `grace` seconds to finish after SIGTERM.
    """
    console = Terminal(highlight=False, soft_wrap=True, markup=False)
    run = RunContext(preflight(studies, execution, options))
    for work in run.works:
        for note in work.notes:
            console.print(note)
    # Several workers may run on one host, so the process id is part of the name.
    host = f"{socket.gethostname()} {os.getpid()}"
    with stopped_by_sigterm(grace) as stop:
        while True:
            lines = LogLines(console, run.progress)
            lines.log(f"{', '.join(run.names)}: {lines.progress}, {len(run.units):,} units to do")
            submit = lines.logged(in_threads(run.pool, run.progress, stop), stop)
            try:
                summary = drive(run, submit, lines, host=host, waits=waits, stop=stop)
            finally:
                if end:
                    end.skips_handlers = run.pool.head.is_lost
            if stop.is_set() or summary.held or not look(run, lines.log):
                break
    if stop.is_set():
        lines.log("stopped by SIGTERM; other workers can compute the unfinished units")
        raise KeyboardInterrupt
    if summary.held:
        left = f"{len(summary.held):,} units are left to other workers"
        lines.log(f"{left}; {run.computed:,} steps computed")
    else:
        from tasks import projections  # loads DuckDB, which a worker that writes no catalog lacks

        for name in run.names:
            counts = projections.record(execution.home, name, mlflow_server(execution.home))
            cells = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
            lines.log(f"{name}: {run.computed} steps computed; cells: {cells}")
    require_complete(run, summary)


class LogLines:
    """A display that prints a line whenever a unit starts or ends, for runs without a live view."""

    def __init__(self, console: Console, progress: RunProgress) -> None:
        self._console, self._lock, self._last_line = console, threading.Lock(), time.monotonic()
        self.progress = progress

    def log(self, line: str) -> None:
        """Print a line with the current time, from any thread."""
        # A log that cannot be written, for example on a full disk, must not end the run.
        with self._lock, suppress(OSError):
            self._last_line = time.monotonic()
            self._console.print(f"{time.strftime('%H:%M:%S')} {line}")

    def logged(self, submit: Submit, stop: Stop) -> Submit:
        def submit_logged(claim: Claim, slot: Slot, end: Callable[[UnitResult], None]) -> None:
            start, where = time.monotonic(), f" on GPU {', '.join(slot.gpus)}" if slot.gpus else ""
            shared = " (shared with another worker)" if claim.shared else ""
            self.log(f"started  {claim.unit.name}{where}{shared}")

            def end_logged(result: UnitResult) -> None:
                is_released = stop.is_set() and isinstance(result, WorkerLostError)
                outcome = "released" if is_released else _outcome(result)
                took = formats.duration(time.monotonic() - start)
                try:
                    self.log(f"finished {claim.unit.name} in {took}: {outcome}")
                finally:
                    end(result)

            submit(claim, slot, end_logged)

        return submit_logged

    def finish(self, *units: Unit, failure: str = "") -> None:
        self.progress.end(units, failed=bool(failure))

    def refresh(self) -> None:
        if time.monotonic() - self._last_line > LINE_SECONDS:
            running = "; ".join(self.progress.running()) or "waiting for steps of other workers"
            self.log(f"{self.progress}, {self.progress.time}  {running}")

    def show(self, text: str) -> None:
        self._console.print(text)

    def close(self) -> None: ...


@contextmanager
def stopped_by_sigterm(grace: float) -> Iterator[Stop]:
    """Yield a `Stop` that SIGTERM sets; Slurm and Kubernetes send it before they kill a job."""
    stop = Stop(grace)
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def _outcome(result: UnitResult) -> str:
    if isinstance(result, StepsFailedError):
        return f"failed, {result.reason}"
    if isinstance(result, BaseException):
        return f"failed, {result}"
    counts = {
        "computed": result["computed"],
        "already done": result["existing"],
        "left to other workers": len(result["held"]),
    }
    return ", ".join(f"{number} {what}" for what, number in counts.items() if number)


def in_threads(pool: Pool, progress: RunProgress, stop: threading.Event) -> Submit:
    """Return a function that computes a unit in a new thread, with retries until `stop`."""
    max_attempts = pool.execution.max_attempts

    def submit(claim: Claim, slot: Slot, end: Callable[[UnitResult], None]) -> None:
        attempt = partial(compute, pool, progress, claim.unit, slot, claim.shared)

        def run() -> None:
            try:
                result: UnitResult = with_retries(attempt, max_attempts, stop)
            except BaseException as error:  # noqa: BLE001 - the scheduler records it for the unit
                result = error
            end(result)

        # A daemon thread, so that an interrupted process can exit without waiting for it.
        threading.Thread(target=run, daemon=True).start()

    return submit
