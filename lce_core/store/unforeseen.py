"""What a command says when something was raised that is no `LceError`.

A home may be on a disk that is full, read-only or broken, and any file of it may have become
something else: nobody can foresee every place where that shows. Such errors are told in one
sentence that names the file. Everything else is a defect of lce, whose traceback is kept in a file.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from lce_core.errors import DefectError, LceError, StoreError
from lce_core.store.failures import classify, disk_full, full_disk_in

FULL_BYTES = 1 << 20
"""With less free disk space than this, an error of a database is put down to the disk."""
_DATABASES = ("_duckdb", "aiosqlite", "duckdb", "mlflow", "pyarrow", "sqlalchemy", "sqlite3")
"""Packages whose errors come from the disk, but have no number of the operating system's."""


def explained(error: Exception, home: Path) -> LceError:
    """Return the error to show in the place of one that nobody foresaw.

    Args:
      error: anything that was raised.
      home: the store's folder.
    """
    if isinstance(error, LceError):
        return error
    if disk := _disk(error, home):
        return disk_full(home, disk)
    for one in _chain(error):
        if isinstance(one, OSError) and one.filename is not None:
            return StoreError(
                os.fsdecode(one.filename) if isinstance(one.filename, bytes) else f"{one.filename}",
                one.strerror or str(one),
                "a file or folder as lce makes it, which this user may read and write",
                "move it away or set its permissions, then run again; `lce doctor` looks for more",
            )
    return DefectError(
        "internal error",
        f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
        "no error but those that lce explains",
        f"report it with {_kept(error)}; results in the store are safe",
    )


def _disk(error: Exception, home: Path) -> str | None:
    """Return why the disk of `home` takes nothing, if that is what the error is about."""
    for one in _chain(error):
        if classify(one) == "disk_full":
            strerror = one.strerror if isinstance(one, OSError) else None
            return strerror or full_disk_in(str(one))
    about = any(
        isinstance(one, OSError) or type(one).__module__.partition(".")[0] in _DATABASES
        for one in _chain(error)
    )
    try:
        state = os.statvfs(home)
    except OSError:
        return None
    if about and state.f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS)
    if about and state.f_bavail * state.f_frsize < FULL_BYTES:
        return os.strerror(errno.ENOSPC)
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _kept(error: Exception) -> str:
    """Return the file that the traceback was written to; print it where none can be written."""
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
