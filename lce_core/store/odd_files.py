"""Files of a home, read and replaced whatever lies in their place.

A home lives for years on shared disks, where a file may become a folder, a link to nothing or a
FIFO, which blocks whoever opens it. Whoever reads a file of a home does it here.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import uuid
from pathlib import Path
from typing import Any, BinaryIO

from lce_core.errors import StoreError

NOT_A_FILE = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ELOOP, errno.EISDIR, errno.EINVAL)
)
"""Error numbers of `open_file` where there is no file; with others there is one, out of reach."""


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading, or what a link to one names.

    Raises:
      OSError: there is none; with a number of `NOT_A_FILE` where something else lies there.
    """
    # A FIFO without a writer would block; of a regular file the flag changes nothing.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_file(path: Path) -> bytes:
    """Return a regular file's bytes; errors of `open_file`."""
    with open_file(path) as file:
        return file.read()


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the JSON mapping that a file holds.

    Raises:
      OSError: there is no such file, or it cannot be read.
      ValueError: it holds something else.
    """
    try:
        content = json.loads(read_file(path))
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"{type(content).__name__}, not a mapping")
    return content


def put(aside: Path, path: Path) -> None:
    """Rename `aside` to `path`, over the file there; a folder in its place is set aside."""
    try:
        aside.replace(path)
    except IsADirectoryError:
        _set_aside(path)
        aside.replace(path)


def make_way(path: Path) -> None:
    """Let a file be written at `path`: remove a FIFO or a loop of links, set a folder aside."""
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            try:
                mode = path.stat().st_mode
            except OSError:
                mode = stat.S_IFIFO  # a link to nothing
        if stat.S_ISDIR(mode):
            _set_aside(path)
        elif not stat.S_ISREG(mode):
            path.unlink()


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all in it, as far as that can be done."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def make_folder(path: Path) -> Path:
    """Make a folder of a home, and those above it; return it.

    Raises:
      StoreError: something else lies in its place.
      OSError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        place = next(one for one in (*reversed(path.parents), path) if _is_odd(one))
        raise no_folder(place) from error
    return path


def no_folder(path: Path) -> StoreError:
    """Return the error about something else in the place of a folder."""
    return StoreError(
        path,
        "a file, or a link to nothing",
        "a folder",
        "move it away, then run again, which makes the folder",
    )


def _is_odd(path: Path) -> bool:
    return os.path.lexists(path) and not path.is_dir()


def _set_aside(path: Path) -> None:
    # It is not ours, so somebody may miss what lies in it.
    path.rename(path.with_name(f"{path.name}.set-aside-{uuid.uuid4().hex[:8]}"))
