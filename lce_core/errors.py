"""All errors that this project raises deliberately, in one form: got X; expected Y; do Z.

`lce_core.store.failures` decides which errors are retried, and `lce.cli` assigns exit codes.
"""

import copyreg
import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self


def _part(index: int) -> Any:
    return property(lambda error: error.parts[index])


class LceError(Exception):
    """Base class of all errors that lce raises deliberately.

    Args:
      where: The key, file, option or function concerned.
      remedy: The action to take, as an imperative in lower case without a final period.
      details: Further lines below the message, such as the end of a log.
    """

    def __init__(
        self, where: str | Path, got: object, expected: str, remedy: str, details: str = ""
    ) -> None:
        # Convert everything to strings, so that every error can be pickled across processes.
        super().__init__(str(where), str(got), str(expected), str(remedy), str(details))

    where: str = _part(0)
    got: str = _part(1)
    expected: str = _part(2)
    remedy: str = _part(3)
    details: str = _part(4)

    @property
    def parts(self) -> tuple[str, ...]:
        return self.args

    def within(self, where: str) -> Self:
        """Return a copy with another `where`, for callers that know the full path of the value."""
        return type(self).__new__(type(self), where, *self.parts[1:])

    def __str__(self) -> str:
        message = f"{self.where}: got {self.got}; expected {self.expected}; {self.remedy}"
        return f"{message}:\n{self.details}" if self.details else message

    def __reduce__(self) -> tuple[Any, ...]:
        # Bypass __init__, because subclasses have other constructor arguments than the parts.
        rebuild = copyreg.__newobj__  # type: ignore[attr-defined]
        return rebuild, (type(self), *self.parts), self.__dict__


class SpecError(LceError, ValueError):
    """A study file, command or setting is wrong; nothing was computed or written."""


class UnavailableError(LceError):
    """A model, data set or cell is unavailable; the report shows the message."""


class DataError(LceError):
    """Text, tokens or weights cannot be read, or differ from what their name or record states."""


class NonFiniteError(LceError):
    """A loss or score became NaN or infinite."""


class StoreError(LceError):
    """The store on disk is damaged or inconsistent, or its disk is full or read-only."""


class LeaseLostError(StoreError):
    """Another process took over the lease of a step, so this process discards its result."""


class ServiceError(LceError):
    """A server (Prefect, MLflow) cannot be started or reached, or a browser cannot print a PDF."""


class PrefectMovedError(ServiceError):
    """The installed Prefect lacks a function that lce extends."""


class WorkerLostError(LceError):
    """A worker process ended while it computed a step (killed, out of memory, crashed)."""

    fingerprint: str | None = None
    """Fingerprint of the step that the process was computing, if known."""


class RunEndedError(LceError):
    """The run ended in the middle of a unit, for example at Ctrl-C. Nothing may retry the unit."""


class ProcessFailedError(LceError):
    """A launched process raised an unexpected exception: most likely a bug in lce."""


class DefectError(LceError):
    """An unexpected exception: a bug in lce."""


class StepsFailedError(LceError):
    """Some steps of a unit failed; `failed` has fingerprint, class, error and message of each."""

    held: tuple[str, ...] = ()
    """Fingerprints of steps that the worker skipped because other processes compute them."""

    def __init__(self, unit: str, failed: Sequence[Mapping[str, Any]]) -> None:
        self.failed = tuple(failed)
        first = self.failed[0]
        more = f" (and {len(self.failed) - 1} more steps)" if len(self.failed) > 1 else ""
        self.reason = f"{first['class']}: {first['error']}: {first['message']}{more}"
        """First failure as "class: error: message", then "(and N more steps)" if more failed."""
        super().__init__(
            unit,
            f"{len(self.failed)} failed step{'s' * (len(self.failed) > 1)}",
            "every step of the unit done",
            "fix the cause of the first failure, then run the study again",
            self.reason,
        )


class StudyIncompleteError(LceError):
    """Some units of a study failed; all others are done."""

    def __init__(self, study: str, failures: Mapping[str, str], num_abandoned: int) -> None:
        listed = [f"  {name}: {why}" for name, why in sorted(failures.items())]
        if num_abandoned:
            listed.append(f"  and {num_abandoned} units that did not run because of these")
        super().__init__(
            study,
            f"{len(failures)} failed unit{'s' * (len(failures) > 1)}",
            "every unit done",
            "fix these causes, then run the study again",
            "\n".join(listed),
        )


def restored(name: str, parts: Sequence[str]) -> LceError | None:
    """Rebuild another process's error; None if this module has no class `name`."""
    kind = globals().get(name)
    if isinstance(kind, type) and issubclass(kind, LceError):
        return kind.__new__(kind, *parts)
    return None


def first_line(error: BaseException) -> str:
    """Return class and first line of any exception, such as "OSError: no message"."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name, such as "write 'pi', or another of ..."."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"write {close[0]!r}, or another of {', '.join(names)}"
    return f"write one of {', '.join(names) or '(none)'}"


def require_known(where: str, names: Iterable[str], expected: str, known: Collection[str]) -> None:
    """Raise SpecError for the first of `names` that is not in `known`."""
    for name in names:
        if name not in known:
            raise SpecError(where, repr(name), expected, did_you_mean(str(name), known))
