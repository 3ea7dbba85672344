"""Brings the catalog up to date while somebody looks at it: `python -m tasks.fresh_catalog HOME`.

A run writes the catalog at its end and after its first seed. A dashboard shows cells as they
finish, so this process, beside it, looks at the store again and again. It takes a tenth of a core
at most, writes only where something has changed, and ends with its standard input, which is held by
the dashboard.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

from lce_core.store.unforeseen import explained
from lce_core.terminal import guard_terminal
from tasks.projections import refresh
from tasks.questions import catalog_path

EVERY_SECONDS = 5.0
SHARE = 0.1
"""Of the time, at most, in which it works."""


def keep_fresh(home: Path, ended: threading.Event, every: float = EVERY_SECONDS) -> None:
    """Looks at the store until `ended` is set, `every` so many seconds at most.

    Raises:
      LceError, OSError: the store cannot be read, or the catalog not written.
    """
    pause = every
    while not ended.wait(pause):
        clock = time.perf_counter()
        # Never the first, and never of no store: a catalog that came alone would be emptied.
        if catalog_path(home).is_file() and (home / "studies").is_dir():
            refresh(home)
        pause = max(every, (time.perf_counter() - clock) / SHARE)


def main(home: Path) -> int:
    """Keeps the catalog of `home` fresh; returns the exit code."""
    guard_terminal()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the dashboard, whose end is ours
    ended = threading.Event()
    threading.Thread(target=_wait_for_end, args=(ended,), daemon=True).start()
    try:
        keep_fresh(home, ended)
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
    sys.exit(main(Path(sys.argv[1])))
