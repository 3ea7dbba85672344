"""Which process a pid means: one that is used again names another process.

A start in seconds since the epoch would not do: the system computes it from its clock, and moves it
for every process when somebody sets the clock.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil


def started(pid: int) -> float:
    """Seconds from the start of the system to that of the process; since the epoch without /proc.

    Raises:
      psutil.NoSuchProcess: no process has that pid.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        # After the command, which stands in brackets and may hold anything: field 22 of proc(5).
        ticks = int(stat.rpartition(")")[2].split()[19])
        return ticks / os.sysconf("SC_CLK_TCK")
    return float(psutil.Process(pid).create_time())


def running(pid: int, at: float) -> psutil.Process | None:
    """The process of that pid which started then, in seconds of `started`; None if it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if abs(started(pid) - at) < 1.0 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None
