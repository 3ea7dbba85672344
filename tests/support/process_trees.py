"""Children of a process, and those that outlive it."""

import os
import signal
import time
from pathlib import Path


def left(family: list[int]) -> list[int]:
    """Those that still run after ten minutes; they are killed."""
    deadline = time.monotonic() + 600
    while any(map(is_running, family)) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = [pid for pid in family if is_running(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [found for child in map(int, children) for found in (child, *descendants(child))]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
