"""Cache facts derived from files, so that unchanged files are not read again.

A fact is, for example, a file's digest or the number of tokens in a data set's prompts. A cached
fact is valid while path, size, mtime, ctime and inode of all its files are unchanged. File system
clocks have a limited resolution: a file can change twice within one tick without a change of its
times. Like git, this module therefore caches no facts about files that changed less than
`TICK_SECONDS` ago or while they were read. If the local clock is ahead of the file server's clock,
files look older than they are; this matters only for files that changed moments ago.

The cache is the file home/cache/files. Its first line is the sha256 of the rest. Each process that
saves merges its facts into the file under a lock. A damaged or lost cache costs only time.

Plug-ins call `fact_of` and `sha256_of`. Inside a `with FileFacts.in_use()` block these functions
use the cache, elsewhere they read the files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from filelock import FileLock

from lce_core.store.identity import sha256_file
from lce_core.store.odd_files import read_file, write_file

T = TypeVar("T")

TICK_SECONDS = 2.0
"""Two changes of a file within this time may have equal timestamps. FAT, whose timestamps have a
resolution of two seconds, is the coarsest file system."""
WORTH_A_HOME_BYTES = 1 << 28
"""If LCE_HOME does not exist, `save` creates it only if at least this many bytes were read to
compute facts (which takes about a second), so that planning a small study creates no files."""
_LOCK_SECONDS = 10.0
"""Longest wait while another process saves. `save` then gives up and keeps the facts in memory."""


@dataclass(frozen=True)
class _State:
    """Metadata of a set of files, compared to detect changes without reading the files."""

    mark: str
    """sha256 over path, size, mtime, ctime and inode of every file."""
    newest: int
    """Latest mtime or ctime of any file, in nanoseconds since the epoch."""
    num_bytes: int


class FileFacts:
    """Cache of digests and other facts about files, stored in one home."""

    def __init__(self, home: Path) -> None:
        self._home, self._file = home, home / "cache" / "files"
        self._known: dict[str, list[Any]] | None = None
        self._new: dict[str, list[Any]] = {}
        self._new_bytes = 0

    def of(
        self,
        what: str,
        place: Path,
        files: Iterable[Path],
        compute: Callable[[], T],
        *,
        fresh: bool = False,
    ) -> T:
        """Return a fact about `files`; compute it only if it is not cached or a file has changed.

        Args:
          what: Name of the fact; include a version if the code that computes it may change.
          place: The file, or the folder that contains the files. `what` and `place` are the cache
            key.
          files: All files on which the fact depends.
          compute: Returns the fact as a JSON value (no tuples). It is also called if a file is
            missing, and must then raise a useful error.
          fresh: If True, compute the fact even if it is cached, and replace the cached value.

        Raises:
          Exception: any error that `compute` raises.
        """
        if self._known is None:
            self._known = _read(self._file)
        files, key = list(files), f"{what}:{place.absolute()}"
        began, state = time.time_ns(), _state(files)
        if state is None:
            return compute()
        known = self._known.get(key)
        if known is not None and known[0] == state.mark and not fresh:
            return cast("T", known[1])
        fact = compute()
        if state.newest + TICK_SECONDS * 1e9 < began and _state(files) == state:
            self._known[key] = self._new[key] = [state.mark, fact]
            self._new_bytes += state.num_bytes
        return fact

    def sha256(self, path: Path, *, fresh: bool = False) -> str:
        """Return the sha256 of a file's bytes as 64 hex digits; see `of` for `fresh`.

        Raises:
          OSError: if the file cannot be read.
        """
        return self.of("sha256", path, [path], lambda: sha256_file(path), fresh=fresh)

    def save(self) -> None:
        """Write new facts to the cache file, ignoring errors."""
        if self._new and (self._home.is_dir() or self._new_bytes >= WORTH_A_HOME_BYTES):
            with contextlib.suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with FileLock(self._file.with_name(".files.lock"), timeout=_LOCK_SECONDS):
                    _write(self._file, {**_read(self._file), **self._new})
                self._new, self._new_bytes = {}, 0

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Make `fact_of` and `sha256_of` use this cache inside the `with` block.

        Save the cache after the block, unless the block raises an error.
        """
        token = _IN_USE.set(self)
        try:
            yield
        finally:
            _IN_USE.reset(token)
        self.save()


_IN_USE: ContextVar[FileFacts | None] = ContextVar("file_facts", default=None)


def fact_of(what: str, place: Path, files: Iterable[Path], compute: Callable[[], T]) -> T:
    """Return a fact about `files`, cached inside `FileFacts.in_use`; elsewhere call `compute`.

    See `FileFacts.of` for the arguments.
    """
    facts = _IN_USE.get()
    return compute() if facts is None else facts.of(what, place, files, compute)


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's bytes as 64 hex digits, cached inside `FileFacts.in_use`."""
    facts = _IN_USE.get()
    return sha256_file(path) if facts is None else facts.sha256(path)


def _state(files: Iterable[Path]) -> _State | None:
    mark, newest, num_bytes = hashlib.sha256(), 0, 0
    for file in files:
        try:
            found = _stat(file)
        except OSError:
            return None
        times = (found.st_mtime_ns, found.st_ctime_ns)
        # Include ctime: a program can set mtime back after it has changed a file, but not ctime.
        mark.update(f"{found.st_size} {times} {found.st_ino} ".encode())
        mark.update(os.fsencode(file.absolute()) + b"\n")
        newest, num_bytes = max(newest, *times), num_bytes + found.st_size
    return _State(mark.hexdigest(), newest, num_bytes)


def _stat(file: Path) -> os.stat_result:
    return file.stat()


def _read(file: Path) -> dict[str, list[Any]]:
    try:
        check, _, content = read_file(file).partition(b"\n")
    except OSError:
        return {}
    if check.decode("ascii", "replace") != hashlib.sha256(content).hexdigest():
        return {}
    try:
        entries = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _write(file: Path, entries: dict[str, list[Any]]) -> None:
    content = json.dumps(entries).encode()
    write_file(file, hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
