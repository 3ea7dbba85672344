"""Cache facts derived from files, so that unchanged files are not read again.

A fact is a digest, for example, or the size of a data set's prompts. It is cached together with the
state of its files: path, size, mtime, ctime and inode. While the state is unchanged the files are
not opened. File system clocks have a limited resolution, so a file can change twice within one tick
without a change of its times. As git does, this module caches nothing about files younger than a
tick, and nothing about files that changed while they were read. The check assumes that the local
clock is ahead of the file server's clock by less than the age of the files.

The cache is the file home/cache/files. Its first line is the sha256 of the rest; a damaged cache is
ignored and rewritten. Several processes may save concurrently: under a lock, each merges its facts
into the file and renames the new file into place. Losing the cache costs only time.

Plug-ins call `fact_of` and `sha256_of`, which need no store: inside `FileFacts.in_use` they use its
cache, elsewhere they compute the fact.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from filelock import FileLock

from lce_core.store.identity import sha256_file
from lce_core.store.odd_files import put, read_file

T = TypeVar("T")

TICK_SECONDS = 2.0
"""Two changes within this time may have equal timestamps. FAT has the coarsest clock."""
WORTH_A_HOME_BYTES = 1 << 28
"""If no home exists, `save` creates one only after reading this much (about a second), so that
planning a small study leaves nothing behind."""
_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class _State:
    """Metadata that identifies an unchanged set of files without reading them."""

    mark: str
    """sha256 over path, size, mtime, ctime and inode of every file."""
    newest: int
    """Latest mtime or ctime of any file, in nanoseconds since the epoch."""
    num_bytes: int


class FileFacts:
    """The cache of file facts of one store."""

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
        """Return a fact about `files`, computing it only if it is not cached for their state.

        Args:
          what: Type of the fact; include a version if the code that computes it may change.
          place: The file, or the folder that contains the files; with `what` the key in the cache.
          files: All files on which the fact depends.
          compute: Computes the fact; the value must survive a JSON round trip (no tuples). It is
            also called if a file is missing, and must then raise a useful error.
          fresh: Compute the fact even if it is cached, and replace the cached value.

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
        """Return the sha256 of a file's bytes as 64 hex digits; `fresh` as in `of`.

        Raises:
          OSError: if the file cannot be read.
        """
        return self.of("sha256", path, [path], lambda: sha256_file(path), fresh=fresh)

    def save(self) -> None:
        """Merge new facts into the cache file; ignore errors when writing it."""
        if self._new and (self._home.is_dir() or self._new_bytes >= WORTH_A_HOME_BYTES):
            with contextlib.suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with FileLock(self._file.with_name(".files.lock"), timeout=_LOCK_SECONDS):
                    _write(self._file, {**_read(self._file), **self._new})
                self._new, self._new_bytes = {}, 0

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Make `fact_of` and `sha256_of` use this cache inside the `with` block, then save it.

        If the block raises an error, the new facts are not saved.
        """
        token = _IN_USE.set(self)
        try:
            yield
        finally:
            _IN_USE.reset(token)
        self.save()


_IN_USE: ContextVar[FileFacts | None] = ContextVar("file_facts", default=None)


def fact_of(what: str, place: Path, files: Iterable[Path], compute: Callable[[], T]) -> T:
    """Return a fact by `FileFacts.of` inside `FileFacts.in_use`; elsewhere call `compute`."""
    facts = _IN_USE.get()
    return compute() if facts is None else facts.of(what, place, files, compute)


def sha256_of(path: Path) -> str:
    """Return a file's sha256, cached only inside `FileFacts.in_use`."""
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
        # A program can set mtime back after changing a file, but it cannot set ctime.
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
    aside = file.with_name(f".files-{uuid.uuid4().hex[:8]}")
    try:
        aside.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        put(aside, file)
    finally:
        aside.unlink(missing_ok=True)
