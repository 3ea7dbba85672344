"""Failure classes: which failures may pass when tried again, and how.

| class | cause | retried |
|---|---|---|
| out_of_memory | CUDA or host memory | with half the micro-batch, same global batch |
| transient | I/O, NCCL, lost worker, lost lease | after a growing pause |
| disk_full | no space left | never; the run stops, nothing finished is lost |
| non_finite | NaN or infinite loss or score | never, nor by a later run |
| data | bad data, bad request | never; a later run tries again |
| unavailable | the cell cannot be | never; a later run only if it names other folders |
| defect | anything else: most likely our bug | never; a later run tries again |
"""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from lce_core.errors import DataError, LeaseLostError, NonFiniteError, SpecError, UnavailableError

if TYPE_CHECKING:
    from lce_core.store.steps import Step

FailureClass = Literal[
    "out_of_memory", "transient", "disk_full", "non_finite", "data", "unavailable", "defect"
]

RETRIED: frozenset[str] = frozenset({"out_of_memory", "transient"})


class WorkerLostError(Exception):
    """A worker process ended in the middle of a step (killed, out of memory, crashed)."""

    def __init__(self, message: str, step: Step | None = None) -> None:
        super().__init__(message)
        self.step = step
        """The step it was computing, if it had begun one."""


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


class StepsFailedError(Exception):
    """Some steps of a unit failed; the others of the unit are done."""

    def __init__(self, failed: Sequence[Mapping[str, Any]]) -> None:
        self.failed = tuple(failed)
        first = self.failed[0]
        more = f" (and {len(self.failed) - 1} more steps)" if len(self.failed) > 1 else ""
        super().__init__(f"{first['class']}: {first['error']}: {first['message']}{more}")

    @property
    def may_pass(self) -> bool:
        """Whether trying again can help at least one of the steps."""
        return any(event["class"] in RETRIED for event in self.failed)
