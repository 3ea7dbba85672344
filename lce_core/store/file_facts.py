"""Cache facts derived from files, so that unchanged files are not read again.

A cached fact, such as a digest, is valid while path, size, mtime, ctime and inode of all its files
are unchanged. File system clocks have a limited resolution: a file can change twice within one tick
without a change of its times. Like git, this module therefore caches no facts about files that
changed less than `TICK_SECONDS` ago or while they were read. A local clock ahead of the file
server's makes files look older, which matters only for those that changed moments ago.

The first line of home/cache/files is the sha256 of the rest. Each process that saves merges its
facts into the file under a lock. A damaged or lost cache costs only time.

Plug-ins call `fact_of` and `sha256_of`, which use the cache inside `with FileFacts.in_use()`.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar, cast

from filelock import FileLock

from lce_core.store.identity import sha256_file
from lce_core.store.odd_files import read_file, write_file

T = TypeVar("T")

TICK_SECONDS = 2.0
"""FAT's timestamps are the coarsest: changes within two seconds may have equal ones."""
WORTH_A_HOME_BYTES = 1 << 28
"""`save` creates a missing LCE_HOME only after this many bytes were read (about a second), so that
planning a small study creates no files."""
_LOCK_SECONDS = 10.0
"""Longest wait while another process saves; then `save` keeps the facts in memory."""


class FileFacts:
    """Cache of digests and other facts about files, in one home."""

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
        """Return a fact about `files` as JSON, computed if a file has changed, or if `fresh`.

        `what` and the files' folder `place` are the cache key; `what` includes a version if the
        code of `compute` may change. `compute` is called also if a file is missing, for a useful
        error.
        """
        if self._known is None:
            self._known = _read(self._file)
        files, key = list(files), f"{what}:{place.absolute()}"
        began, state = time.time_ns(), _state(files)
        if state is None:
            return compute()
        known = self._known.get(key)
        mark, newest, num_bytes = state
        if known is not None and known[0] == mark and not fresh:
            return cast("T", known[1])
        fact = compute()
        if newest + TICK_SECONDS * 1e9 < began and _state(files) == state:
            self._known[key] = self._new[key] = [mark, fact]
            self._new_bytes += num_bytes
        return fact

    def sha256(self, path: Path, *, fresh: bool = False) -> str:
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
        """Let `fact_of` and `sha256_of` use this cache inside the block; then save it."""
        token = _IN_USE.set(self)
        try:
            yield
        finally:
            _IN_USE.reset(token)
        self.save()


_IN_USE: ContextVar[FileFacts | None] = ContextVar("file_facts", default=None)


def fact_of(what: str, place: Path, files: Iterable[Path], compute: Callable[[], T]) -> T:
    """Return a fact about `files`, cached inside `FileFacts.in_use` (see `FileFacts.of`)."""
    facts = _IN_USE.get()
    return compute() if facts is None else facts.of(what, place, files, compute)


def sha256_of(path: Path) -> str:
    return fact_of("sha256", path, [path], lambda: sha256_file(path))


def _state(files: Iterable[Path]) -> tuple[str, int, int] | None:
    """Return a sha256 of all files' stats, the latest change in ns and the size in bytes."""
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
    return mark.hexdigest(), newest, num_bytes


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
