"""Identify a process by pid and start time, because the system reuses pids.

Start times count from boot; those since the epoch change when a user sets the clock.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil


def started(pid: int) -> float:
    """Return a process's start time in seconds since boot; since the epoch if there is no /proc."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        # The start time is field 22 of proc(5). Split after the last ")", because field 2, the
        # command in parentheses, may contain spaces and parentheses.
        ticks = int(stat.rpartition(")")[2].split()[19])
        return ticks / os.sysconf("SC_CLK_TCK")
    return float(psutil.Process(pid).create_time())


def running(pid: int, at: float) -> psutil.Process | None:
    """Return the process with this pid and start time, or None if it has exited."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if abs(started(pid) - at) < 1.0 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None
