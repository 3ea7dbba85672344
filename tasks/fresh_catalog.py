"""Brings the catalog up to date while the store changes: `python -m tasks.fresh_catalog HOME`.

A run writes the catalog at its end and after its first seed. Readers see cells as they finish all
the same, because a process beside a run, and one beside a dashboard, polls the store. It writes
only when something has changed, works a small share of the time at low priority, and ends with its
standard input, which the run or the dashboard holds. It loads DuckDB when there is something to do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lce_core.store.odd_files import make_folder, make_way
from lce_core.store.unforeseen import explained
from lce_core.terminal import guard_terminal
from tasks.own_code import of_own_code


@dataclass(frozen=True)
class Pace:
    """How often the store is polled."""

    seconds: float
    """Shortest pause between two polls, and the pause before the first."""
    share: float
    """Largest share of one core's time for polling and building."""
    makes_first: bool
    """Whether a home without a catalog gets one."""


BESIDE_A_DASHBOARD = Pace(seconds=5.0, share=0.1, makes_first=False)
BESIDE_A_RUN = Pace(seconds=30.0, share=0.03, makes_first=True)
"""A build of one second is repeated after half a minute, one of ten seconds after five minutes."""
_BESIDE_A_RUN = "--beside-a-run"
_END_SECONDS = 60.0
_NICE = 10
"""Added to the process's niceness, so that computing comes first."""


def keep_fresh(home: Path, ended: threading.Event, pace: Pace = BESIDE_A_DASHBOARD) -> None:
    """Polls the store until `ended` is set.

    Raises:
      LceError, OSError: the store cannot be read, or the catalog not written.
    """
    pause = pace.seconds
    while not ended.wait(pause):
        clock = time.perf_counter()
        from tasks.projections import refresh
        from tasks.questions import catalog_path

        # Never of no store: a catalog that came alone would be emptied.
        wanted = pace.makes_first or catalog_path(home).is_file()
        if wanted and (home / "studies").is_dir():
            refresh(home)
        pause = max(pace.seconds, (time.perf_counter() - clock) / pace.share)


@contextlib.contextmanager
def catalog_kept_fresh(home: Path) -> Iterator[None]:
    """While the block runs, the catalog shows cells within about a minute of their end.

    What the process has to say goes to logs/live-results.log.
    """
    log = make_folder(home / "logs") / "live-results.log"
    make_way(log)
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tasks.fresh_catalog", str(home), _BESIDE_A_RUN],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            env=of_own_code(),
            start_new_session=True,  # Ctrl-C is for the run, whose end it waits for
        )
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            # A build that has begun is finished: what ends the run would wait for its lock.
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(home: Path, pace: Pace) -> int:
    """Keeps the catalog of `home` fresh; returns the exit code."""
    guard_terminal()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the dashboard, whose end is ours
    os.nice(_NICE)
    ended = threading.Event()
    threading.Thread(target=_wait_for_end, args=(ended,), daemon=True).start()
    try:
        keep_fresh(home, ended, pace)
    except Exception as error:  # noqa: BLE001 - the dashboard goes on with what there is
        error = explained(error, home)
        sys.stderr.write(f"lce: the catalog is not brought up to date any more: {error}\n")
        return 3
    return 0


def _wait_for_end(ended: threading.Event) -> None:
    while sys.stdin.buffer.read(1):
        pass
    ended.set()


if __name__ == "__main__":
    beside_a_run = _BESIDE_A_RUN in sys.argv[2:]
    sys.exit(main(Path(sys.argv[1]), BESIDE_A_RUN if beside_a_run else BESIDE_A_DASHBOARD))
