"""Convert exceptions other than `LceError` into errors for the user of a command.

If the disk of LCE_HOME is full, read-only or broken, or a file in it was replaced or made
unreadable, the user gets one sentence that names the file. Any other exception is a bug in lce: the
user gets a `DefectError`, and a file with the traceback.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from lce_core.errors import DefectError, LceError, SpecError, StoreError
from lce_core.store.failures import classify, disk_full, full_disk_in

FULL_BYTES = 1 << 20
"""Free space below which an I/O or database error counts as a full disk."""
_DATABASES = ("_duckdb", "aiosqlite", "duckdb", "mlflow", "pyarrow", "sqlalchemy", "sqlite3")
"""Packages that raise disk errors without an errno."""


def explained(error: Exception, home: Path) -> LceError:
    """Return the error that a command reports for an exception; an `LceError` is unchanged."""
    if isinstance(error, LceError):
        return error
    if _output_is_closed():
        # Python flushes it once more at exit, which would fail and change the exit code.
        sys.stdout = io.StringIO()
        return SpecError(
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
            return StoreError(
                os.fsdecode(one.filename) if isinstance(one.filename, bytes) else f"{one.filename}",
                one.strerror or str(one),
                "a file or folder that lce created and this user may read and write",
                "move it away or correct its permissions; `lce doctor` checks all of LCE_HOME",
            )
    return DefectError(
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
    """Write the traceback to a temporary file, or else to standard error; return its place."""
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
