"""Classify failures of steps. The class decides in which run a failed step is retried.

| class | cause | retried |
|---|---|---|
| out_of_memory | CUDA or host memory | in this run, with half the micro-batch, same global batch |
| transient | I/O, NCCL, lost worker, lost lease | in this run, after a growing pause |
| disk_full | no space left, or a read-only disk | in the next run; this run stops |
| non_finite | NaN or infinite loss or score | in a run with --retry-failed |
| data | unreadable data, invalid settings | in the next run |
| unavailable | missing data or weights | with other data or model folders, or --retry-failed |
| defect | anything else: most likely a bug in lce | in the next run |
"""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Literal

from lce_core.errors import (
    DataError,
    LeaseLostError,
    NonFiniteError,
    SpecError,
    StoreError,
    UnavailableError,
    WorkerLostError,
)

FailureClass = Literal[
    "out_of_memory", "transient", "disk_full", "non_finite", "data", "unavailable", "defect"
]

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""errno values of disk errors that only a user can fix: no space, quota exceeded, read-only."""

_FULL = (
    *map(os.strerror, _DISK),
    # SQLite reports the same conditions by message, without an errno.
    "database or disk is full",
    "attempt to write a readonly database",
)

RETRIED: frozenset[str] = frozenset({"out_of_memory", "transient"})
"""Failure classes after which the same run tries the step again."""


def classify(error: BaseException) -> FailureClass:
    """Return the class by the error's type and errno, or else its message.

    CUDA, NCCL and databases raise one type for different faults.
    """
    if isinstance(error, NonFiniteError):
        return "non_finite"
    if isinstance(error, UnavailableError):
        return "unavailable"
    if isinstance(error, DataError | SpecError):
        return "data"
    if isinstance(error, LeaseLostError | WorkerLostError):
        return "transient"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory"
    if isinstance(error, OSError):
        return "disk_full" if error.errno in _DISK else "transient"
    message = str(error)
    if "CUDA out of memory" in message:
        return "out_of_memory"
    if full_disk_in(message):
        return "disk_full"
    if "NCCL" in message or isinstance(error, subprocess.CalledProcessError | TimeoutError):
        return "transient"
    return "defect"


def full_disk_in(message: str) -> str | None:
    return next((text for text in _FULL if text in message), None)


def disk_full(home: Path, got: str) -> StoreError:
    return StoreError(
        f"LCE_HOME {home}",
        got,
        "a disk with free space that lce may write to",
        "free some space or make the disk writable, then run again: lce continues where it stopped",
    )
