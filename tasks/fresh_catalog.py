"""Update the catalog while the store changes: `python -m tasks.fresh_catalog HOME`.

A run itself writes the catalog only after its first seed and at its end. To show finished cells
earlier, each run and each dashboard starts this process, with low priority and a small share of one
core. It exits when its standard input closes. It loads DuckDB at its first poll.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lce_core.store.failures import explained
from lce_core.terminal import guard_terminal
from tasks.companion import companion, end_of_input


@dataclass(frozen=True)
class Pace:
    """Poll interval of the process and its share of CPU time."""

    seconds: float
    """Shortest pause between two polls, and the pause before the first poll."""
    share: float
    """Largest share of one core's time for polls and builds."""
    creates_missing: bool
    """True to create a missing catalog."""


BESIDE_A_DASHBOARD = Pace(seconds=5.0, share=0.1, creates_missing=False)
BESIDE_A_RUN = Pace(seconds=30.0, share=0.03, creates_missing=True)
"""A catalog build of 1 s is followed by a pause of 33 s, one of 10 s by 333 s."""
_BESIDE_A_RUN = "--beside-a-run"
_NICE = 10
"""Niceness, so that computing processes have priority."""


def keep_fresh(home: Path, ended: threading.Event, pace: Pace = BESIDE_A_DASHBOARD) -> None:
    pause = pace.seconds
    while not ended.wait(pause):
        clock = time.perf_counter()
        from catalog import catalog_path
        from tasks.projections import refresh

        # Do nothing without a store: a refresh would empty a catalog that was copied without it.
        wanted = pace.creates_missing or catalog_path(home).is_file()
        if wanted and (home / "studies").is_dir():
            refresh(home)
        pause = max(pace.seconds, (time.perf_counter() - clock) / pace.share)


@contextlib.contextmanager
def catalog_kept_fresh(home: Path) -> Iterator[None]:
    """Keep the catalog up to date in a separate process, which logs to logs/live-results.log."""
    # At the end of the block, wait for a running build: the run's own build would wait for its lock
    # anyway.
    log = home / "logs" / "live-results.log"
    with companion("tasks.fresh_catalog", str(home), _BESIDE_A_RUN, log=log):
        yield


def main(home: Path, pace: Pace) -> int:
    guard_terminal()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the dashboard, which ends this
    os.nice(_NICE)
    try:
        keep_fresh(home, end_of_input(), pace)
    except Exception as error:  # noqa: BLE001 - the dashboard keeps showing the old catalog
        error = explained(error, home)
        sys.stderr.write(f"lce: the catalog is no longer updated: {error}\n")
        return 3
    return 0


if __name__ == "__main__":
    beside_a_run = _BESIDE_A_RUN in sys.argv[2:]
    sys.exit(main(Path(sys.argv[1]), BESIDE_A_RUN if beside_a_run else BESIDE_A_DASHBOARD))
