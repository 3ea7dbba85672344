r"""Read and replace files of LCE_HOME safely, even if a user put something else at their paths.

A home exists for years on shared disks. A user may replace a file by a folder, a broken link or a
FIFO, and opening a FIFO blocks. All code that reads files of a home must use this module.

The last functions find and replace characters that files and servers cannot store: lone surrogates
and NUL. JSON, YAML, file names and tokenizers can produce strings with half of a surrogate pair,
such as \ud800, which UTF-8 cannot encode. Programs written in C treat NUL as the end of a text.
"""

import contextlib
import errno
import json
import math
import os
import re
import shutil
import stat
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

from lce_core.errors import SpecError, StoreError

NOT_A_FILE = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ELOOP, errno.EISDIR, errno.EINVAL)
)
"""errno values of `open_file` that mean "no regular file here"; others: perhaps unreadable."""


def open_file(path: Path) -> BufferedReader:
    """Open a regular file, or a link to one; else OSError with an errno in `NOT_A_FILE`."""
    # O_NONBLOCK: opening a FIFO without a writer would block. Regular files ignore the flag.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_file(path: Path) -> bytes:
    with open_file(path) as file:
        return file.read()


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a JSON object; ValueError if the content is something else."""
    return json_object(read_file(path))


def json_object(content: bytes) -> dict[str, Any]:
    """Parse a JSON object whose numbers are finite and fit into 64 bits, as databases need them."""
    try:
        found = json.loads(content, parse_int=_int64, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"a JSON value of type {type(found).__name__} instead of an object")
    return found


def _int64(digits: str) -> int:
    number = int(digits)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{digits[:40]}, an integer beyond 64 bits")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]}, which is not a finite number")
    return number


def odd_kind(path: Path) -> str | None:
    """Return what is in the place of a regular file; None if nothing is."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        return "a folder"
    return None if stat.S_ISREG(mode) else "a device, pipe or socket"


def put(aside: Path, path: Path) -> None:
    """Rename `aside` to `path`; a folder there is renamed: ".set-aside-" and the time."""
    try:
        aside.replace(path)
    except IsADirectoryError:
        _set_aside(path)
        aside.replace(path)


def write_file(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Create or replace a file; readers see the previous or the new content, never a part.

    `durable` content survives a machine crash (fsync).
    """
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        put(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)  # do not leave a temporary file per attempt
        raise


def make_way(path: Path) -> None:
    """Delete a FIFO, device or broken link at `path`; rename a folder as `put` does."""
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            try:
                mode = path.stat().st_mode
            except OSError:
                mode = stat.S_IFIFO  # a broken link: treat it like a FIFO and remove it
        if stat.S_ISDIR(mode):
            _set_aside(path)
        elif not stat.S_ISREG(mode):
            path.unlink()


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def make_folder(path: Path) -> Path:
    """Create a folder and its parents; StoreError if a file or broken link is in the way."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        known = (one for one in (*reversed(path.parents), path) if os.path.lexists(one))
        raise no_folder(next(one for one in known if not one.is_dir())) from error
    return path


def no_folder(path: Path) -> StoreError:
    return StoreError(
        path,
        "a file, or a link to a path that does not exist",
        "a folder",
        "move this file or link away and run again; lce then creates the folder",
    )


def _set_aside(path: Path) -> None:
    # lce did not create this folder, so keep its content under a new name.
    path.rename(path.with_name(path.name + free_mark(path)))


SIDE_FILES = ("-wal", "-shm", "-journal", ".wal")


def set_aside(path: Path, why: str, along: Sequence[Path] = ()) -> None:
    """Rename a damaged database and its side files, and say so on standard error.

    A damaged database must not stop a command: lce can rebuild the catalog and MLflow's database
    from the store, and Prefect's contains only the history of runs. The caller holds the lock under
    which lce creates the database. `why` completes "it is ...". `along` are further paths that
    belong to it.
    """
    mark = free_mark(path)
    # Rename side files first: a new database would replay an old write-ahead log beside it.
    sides = [path.with_name(path.name + end) for end in SIDE_FILES]
    moves = [(side, f"{path.name}{mark}{side.name[len(path.name) :]}") for side in sides]
    moves += [(one, f"{one.name}{mark}") for one in (*along, path)]
    for source, name in moves:
        try:
            source.rename(source.with_name(name))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(
                path,
                f"a database that is {why} and cannot be renamed ({error.strerror})",
                "a database that works, or a folder in which lce can rename it",
                "make the folder writable, or move the database to another place",
            ) from None
    sys.stderr.write(
        f"lce: {path} cannot be used: it is {why}. lce renamed it to {path.name}{mark} and"
        " creates a new one.\n"
    )
    sys.stderr.flush()


def free_mark(path: Path) -> str:
    """Return an unused suffix for a renamed file: ".set-aside-" and the UTC time."""
    first = mark = time.strftime(".set-aside-%Y%m%dT%H%M%SZ", time.gmtime())
    number = 1
    while path.with_name(path.name + mark).exists():
        number += 1
        mark = f"{first}-{number}"
    return mark


_READ_AND_WRITE = 0o666


def follow_folder(folder: Path) -> None:
    """Give the files below a folder the folder's permissions to read and write.

    Some libraries create private files (mode 0600), which a second user of a shared LCE_HOME could
    not read. The folder's mode follows the user's umask or default ACL.
    """
    wanted = folder.stat().st_mode & _READ_AND_WRITE
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            # Ignore errors: a file system without modes may refuse chmod.
            with contextlib.suppress(OSError):
                if path.lstat().st_mode & 0o777 != wanted and not path.is_symlink():
                    path.chmod(wanted)


REPLACEMENT = "\ufffd"
_LONE = re.compile("[\ud800-\udfff]")
_REFUSED = re.compile("[\x00\ud800-\udfff]")
_IN_JSON = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
"""Matches bytes of JSON that may be a surrogate: an escape, or three bytes that are not UTF-8."""


def require_text(value: object, where: str) -> None:
    """Refuse lone surrogates and NUL in strings and keys, also nested ones."""
    for place, text, found in _found(_REFUSED, value, where):
        raise SpecError(
            place,
            f"U+{ord(text[found]):04X} as character {found + 1} of the text",
            "text without NUL and without halves of surrogate pairs (U+D800 to U+DFFF)",
            "remove or replace the character",
        )


def lone_surrogates(written: bytes, value: object) -> list[str]:
    """Return the paths, such as "cells[0].task", of strings and keys that have a lone surrogate.

    `value` was parsed from `written`, the search of which is faster and mostly finds nothing.
    """
    if not _IN_JSON.search(written):
        return []
    return [place for place, _, _ in _found(_LONE, value, "")]


def writable(value: Any) -> Any:
    """Return a copy, also nested, in which U+FFFD replaces every lone surrogate."""
    if isinstance(value, str):
        return _LONE.sub(REPLACEMENT, value)
    if isinstance(value, Mapping):
        return {writable(key): writable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [writable(item) for item in value]
    return value


def _found(wanted: re.Pattern[str], value: object, where: str) -> Iterator[tuple[str, str, int]]:
    if isinstance(value, str):
        if match := wanted.search(value):
            yield writable(where), value, match.start()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{where} {key}" if where.endswith(":") else f"{where}.{key}".lstrip(".")
            yield from _found(wanted, key, inner)
            yield from _found(wanted, item, inner)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _found(wanted, item, f"{where}[{index}]")
