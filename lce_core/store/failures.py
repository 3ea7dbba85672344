"""Failure classes: which failures may pass when tried again, and how.

| class | cause | retried |
|---|---|---|
| out_of_memory | CUDA or host memory | with half the micro-batch, same global batch |
| transient | I/O, NCCL, lost worker, lost lease | after a growing pause |
| disk_full | no space left, or a disk now read-only | never; the run stops, nothing done is lost |
| non_finite | NaN or infinite loss or score | never; a later run only with --retry-failed |
| data | bad data, bad request | never; a later run tries again |
| unavailable | the cell cannot be | never; a later run only if it names other folders |
| defect | anything else: most likely our bug | never; a later run tries again |
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
"""What a disk refuses until somebody sees to it."""

_FULL = (
    *map(os.strerror, _DISK),
    # What SQLite says of the same, which gives no numbers.
    "database or disk is full",
    "attempt to write a readonly database",
)

RETRIED: frozenset[str] = frozenset({"out_of_memory", "transient"})


def classify(error: BaseException) -> FailureClass:
    """The class of a failure; decided by type and errno, by message only for NCCL and CUDA."""
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
    """Return the part of a message that says a disk is full or read-only; None without one."""
    return next((text for text in _FULL if text in message), None)


def disk_full(home: Path, got: str) -> StoreError:
    """Return the error of a disk that is full or read-only; what was finished stays."""
    return StoreError(
        f"LCE_HOME {home}",
        got,
        "a disk that takes artifacts",
        "free some space or make it writable, then run again, which goes on where it was",
    )
