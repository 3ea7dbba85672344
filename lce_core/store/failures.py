"""Failure classes: which failures may pass when tried again, and how.

| class | cause | retried |
|---|---|---|
| out_of_memory | CUDA or host memory | with half the micro-batch, same global batch |
| transient | I/O, NCCL, lost worker, lost lease | after a growing pause |
| disk_full | no space left | never; the run stops, nothing finished is lost |
| non_finite | NaN or infinite loss or score | never; a later run only with --retry-failed |
| data | bad data, bad request | never; a later run tries again |
| unavailable | the cell cannot be | never; a later run only if it names other folders |
| defect | anything else: most likely our bug | never; a later run tries again |
"""

from __future__ import annotations

import errno
import subprocess
from typing import Literal

from lce_core.errors import (
    DataError,
    LeaseLostError,
    NonFiniteError,
    SpecError,
    UnavailableError,
    WorkerLostError,
)

FailureClass = Literal[
    "out_of_memory", "transient", "disk_full", "non_finite", "data", "unavailable", "defect"
]

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
        full = {errno.ENOSPC, errno.EDQUOT}
        return "disk_full" if error.errno in full else "transient"
    message = str(error)
    if "CUDA out of memory" in message:
        return "out_of_memory"
    if "No space left on device" in message:
        return "disk_full"
    if "NCCL" in message or isinstance(error, subprocess.CalledProcessError | TimeoutError):
        return "transient"
    return "defect"
