"""Classify and keep failures of steps, and explain unexpected exceptions to users.

The class of a failure decides in which run the step is retried:

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

import contextlib
import errno
import io
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lce_core import errors
from lce_core.store.odd_files import NOT_A_FILE, read_mapping
from lce_core.store.records import write_json
from lce_core.store.steps import Step

FailureClass = Literal[
    "out_of_memory", "transient", "disk_full", "non_finite", "data", "unavailable", "defect"
]

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors that only a user can fix: no space, quota exceeded, read-only."""

_FULL = (
    *map(os.strerror, _DISK),
    # SQLite reports the same conditions by message, without an errno.
    "database or disk is full",
    "attempt to write a readonly database",
)

RETRIED: frozenset[str] = frozenset({"out_of_memory", "transient"})
"""Failure classes after which the same run tries the step again."""


def classify(error: BaseException) -> FailureClass:
    """Return the class by type and errno, or by message where one type has different causes."""
    if isinstance(error, errors.NonFiniteError):
        return "non_finite"
    if isinstance(error, errors.UnavailableError):
        return "unavailable"
    if isinstance(error, errors.DataError | errors.SpecError):
        return "data"
    if isinstance(error, errors.LeaseLostError | errors.WorkerLostError):
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


def disk_full(home: Path, got: str) -> errors.StoreError:
    return errors.StoreError(
        f"LCE_HOME {home}",
        got,
        "a disk with free space that lce may write to",
        "free some space or make the disk writable, then run again: lce continues where it stopped",
    )


FULL_BYTES = 1 << 20
"""Free space below which an I/O or database error counts as a full disk."""
_DATABASES = ("_duckdb", "aiosqlite", "duckdb", "mlflow", "pyarrow", "sqlalchemy", "sqlite3")
"""Packages that raise disk errors without an errno."""


def explained(error: Exception, home: Path) -> errors.LceError:
    """Return the error that a command reports for an exception; an `LceError` is unchanged.

    A fault of the disk or of a file in LCE_HOME names the file. Any other exception is a bug in
    lce: a `DefectError`, with the traceback in a file.
    """
    if isinstance(error, errors.LceError):
        return error
    if _output_is_closed():
        # Python flushes it once more at exit, which would fail and change the exit code.
        sys.stdout = io.StringIO()
        return errors.SpecError(
            "standard output",
            "a stream that is closed",
            "an open stream",
            "remove what closes it from your plug-ins, such as sys.stdout.close(), or do not start"
            " lce with >&-",
        )
    if disk := _disk_fault(error, home):
        return disk_full(home, disk)
    for one in _chain(error):
        if isinstance(one, OSError) and one.filename is not None:
            return errors.StoreError(
                os.fsdecode(one.filename) if isinstance(one.filename, bytes) else f"{one.filename}",
                one.strerror or str(one),
                "a file or folder that lce created and this user may read and write",
                "move it away or correct its permissions; `lce doctor` checks all of LCE_HOME",
            )
    return errors.DefectError(
        "internal error",
        f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
        "no exception",
        f"report this bug and attach {_saved_traceback(error)}; results in the store are safe",
    )


def _output_is_closed() -> bool:
    if sys.stdout is None or sys.stdout.closed:
        return True
    try:
        os.fstat(1)
    except OSError:
        return True
    return False


def _disk_fault(error: Exception, home: Path) -> str | None:
    for one in _chain(error):
        if classify(one) == "disk_full":
            strerror = one.strerror if isinstance(one, OSError) else None
            return strerror or full_disk_in(str(one))
    concerns_files = any(
        isinstance(one, OSError) or type(one).__module__.partition(".")[0] in _DATABASES
        for one in _chain(error)
    )
    try:
        state = os.statvfs(home)
    except OSError:
        return None
    if concerns_files and state.f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS)
    if concerns_files and state.f_bavail * state.f_frsize < FULL_BYTES:
        return os.strerror(errno.ENOSPC)
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _saved_traceback(error: Exception) -> str:
    """Write the traceback to a temporary file, or else to standard error."""
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="backslashreplace",
            prefix="lce-traceback-", suffix=".txt", delete=False,
        ) as file:  # fmt: skip
            file.write(text)
        return file.name
    except OSError:
        sys.stderr.write(text)
        return "the traceback above"


class _Note(BaseModel):
    """Keys that a failure file must have; other files are ignored."""

    model_config = ConfigDict(strict=True)

    failure_class: str = Field(alias="class")
    message: str
    folder: str
    attempts: int
    short_of_memory: int
    folders: dict[str, Any]
    axes: dict[str, Any]

    @classmethod
    def read(cls, file: Path) -> dict[str, Any]:
        note = read_mapping(file)
        cls.model_validate(note)
        return note


class FailureNotes:
    """The failures of a store: home/failures/<id>.json for each step whose last attempt failed."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "failures"

    def of(self, step: Step) -> dict[str, Any] | None:
        """Return a step's valid failure file (see `add`), if any."""
        try:
            return _Note.read(self._file(step.id))
        except OSError as error:
            if error.errno in NOT_A_FILE:
                return None
            raise
        except ValueError:  # truncated by a full disk or a crash
            return None

    def all(self) -> dict[str, dict[str, Any]]:
        found = {}
        for path in sorted(self._folder.glob("*.json")):
            # Meanwhile another process may finish the step and delete the file.
            with contextlib.suppress(OSError, ValueError):
                found[path.stem] = _Note.read(path)
        return found

    def attempts(self) -> dict[str, int]:
        return {step_id: note["attempts"] for step_id, note in self.all().items()}

    def add(self, step: Step, error: BaseException, execution: Mapping[str, Any]) -> None:
        """Replace the step's failure file after a failed attempt.

        `attempts` counts failed ones since the step was last done, `short_of_memory` those of them
        that ran out of memory or lost their worker.
        """
        last, kind = self.of(step) or {}, classify(error)
        memory = kind == "out_of_memory" or isinstance(error, errors.WorkerLostError)
        write_json(
            self._file(step.id),
            {
                "fingerprint": step.fingerprint,
                "folder": step.folder,
                "axes": dict(step.axes),
                "class": kind,
                "error": type(error).__name__,
                "message": str(error)[:2000],
                "trace": "".join(traceback.format_exception(error))[-8000:],
                "attempts": last.get("attempts", 0) + 1,
                "short_of_memory": last.get("short_of_memory", 0) + memory,
                "folders": folders_of(execution),
                "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            },
        )

    def adopt(self, step_id: str, file: Path) -> bool:
        """Copy a failure file of another home, unless the step has one; return False if invalid."""
        try:
            note = _Note.read(file)
        except (OSError, ValueError):
            return False
        if not os.path.lexists(self._file(step_id)):
            write_json(self._file(step_id), note)
        return True

    def forget(self, step_id: str) -> None:
        with contextlib.suppress(IsADirectoryError):  # not created by lce
            self._file(step_id).unlink(missing_ok=True)

    def _file(self, step_id: str) -> Path:
        return self._folder / f"{step_id}.json"


def folders_of(execution: Mapping[str, Any]) -> dict[str, str]:
    """Return the data and model folders by name; unavailable steps are retried if they change."""
    named = {**execution.get("data_folders", {}), **execution.get("model_folders", {})}
    return {name: str(folder) for name, folder in sorted(named.items())}
