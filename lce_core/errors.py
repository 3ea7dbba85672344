"""Every error this project raises on purpose.

LceError
+-- SpecError          the request is wrong (exit code 2); nothing was computed or written
+-- UnavailableError   a cell cannot be, whatever is tried: it becomes a row with this reason
+-- DataError          data is unreadable or not what it claims to be; retrying cannot help
+-- NonFiniteError     a loss or score became NaN or infinite; retrying cannot help
+-- StoreError         an artifact or a lease is not what its record says
|   +-- LeaseLostError another process took the lease over; the attempt must not be committed
+-- ServiceError       a server (Prefect, MLflow) is not there or its port is taken
+-- StudyIncompleteError  cells failed (exit code 1); all others are done
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LceError(Exception):
    """Base of all errors raised on purpose."""


class SpecError(LceError, ValueError):
    """A request that cannot be carried out as written.

    The message has four parts: where, what was given, the rule, the way out.
    """

    def __init__(self, where: str, given: object, rule: str, remedy: str) -> None:
        self.where, self.given, self.rule, self.remedy = where, given, rule, remedy
        super().__init__(f"{where}: {given}: {rule}. {remedy}")


class UnavailableError(LceError):
    """A cell that cannot exist (context limit, data out of reach); the message is its reason."""


class DataError(LceError):
    """Text or tokens that cannot be used, with the file and the rule it breaks."""


class NonFiniteError(LceError):
    """A loss or score that is NaN or infinite, with the step at which it appeared."""


class StoreError(LceError):
    """An artifact, record or lease that contradicts itself."""


class LeaseLostError(StoreError):
    """The lease of a running step was taken over; its attempt is discarded."""


class ServiceError(LceError):
    """A server that cannot be started or reached."""


class StudyIncompleteError(LceError):
    """Some cells failed; the others are done. Lists the failed units with their reasons."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns "Did you mean 'x'? Known: a, b." for an unknown name, best match first."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(names) or '(none)'}."
