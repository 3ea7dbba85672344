"""What follows from files, remembered: a file that is as it was is not read again.

A digest, or how many bytes the prompts of a data set have, is remembered with the files it follows
from: their paths, sizes, times of modification and of change, and inodes. While all of these are
the same the files are not opened. Clocks of file systems tick, so a file that was changed right
before it was read may be changed again without a trace: like git, this module remembers nothing of
files younger than a tick, and nothing of files that changed while they were read. That takes a
clock here that is not ahead of the file server's by as much as the files are old.

The memory is one file of the store, home/cache/files, whose first line is the sha256 of the rest;
damaged, it counts for nothing and is written anew. Several processes may save at once: each adds
what it found to what is there, and renames a whole file into place. Losing it costs time only.

Plug-ins ask `fact_of` and `sha256_of`, which know no store: within `FileFacts.in_use` they
remember, outside of it they compute.
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
"""Changes closer to each other than this may leave equal times: FAT's clock is the coarsest."""
WORTH_A_HOME_BYTES = 1 << 28
"""Where no home is yet, one is made for what took this much reading (a second or so), not for less:
a plan of a small study leaves nothing behind."""
_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class _State:
    """What tells files from other or changed ones without reading them."""

    mark: str
    newest: int
    """The latest time of any of them, in nanoseconds since the epoch."""
    num_bytes: int


class FileFacts:
    """What one store's home remembers."""

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
        """A fact about `files`, computed only if it is not known of them as they are.

        Args:
          what: the kind of fact, with the version of the code that finds it where that may change.
          place: the file, or the folder that the files lie in.
          files: all that the fact follows from.
          compute: gives it, as a value that JSON brings back as it is (no tuples); may raise.
          fresh: compute it anyway, and remember that instead of what was known.

        Raises:
          Whatever `compute` raises, which also has to say it where files cannot be looked at.
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
        """sha256 of a file's bytes, 64 hex digits; `fresh` as in `of`.

        Raises:
          OSError: the file cannot be read.
        """
        return self.of("sha256", path, [path], lambda: sha256_file(path), fresh=fresh)

    def save(self) -> None:
        """Adds what is new here to the memory on disk, if that can be written."""
        if self._new and (self._home.is_dir() or self._new_bytes >= WORTH_A_HOME_BYTES):
            with contextlib.suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with FileLock(self._file.with_name(".files.lock"), timeout=_LOCK_SECONDS):
                    _write(self._file, {**_read(self._file), **self._new})
                self._new, self._new_bytes = {}, 0

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Within it `fact_of` and `sha256_of` remember here; saved where it ends without error."""
        token = _IN_USE.set(self)
        try:
            yield
        finally:
            _IN_USE.reset(token)
        self.save()


_IN_USE: ContextVar[FileFacts | None] = ContextVar("file_facts", default=None)


def fact_of(what: str, place: Path, files: Iterable[Path], compute: Callable[[], T]) -> T:
    """As `FileFacts.of`, of the memory in use; computed where none is."""
    facts = _IN_USE.get()
    return compute() if facts is None else facts.of(what, place, files, compute)


def sha256_of(path: Path) -> str:
    """As `FileFacts.sha256`, of the memory in use; computed where none is."""
    facts = _IN_USE.get()
    return sha256_file(path) if facts is None else facts.sha256(path)


def _state(files: Iterable[Path]) -> _State | None:
    mark, newest, num_bytes = hashlib.sha256(), 0, 0
    for file in files:
        try:
            found = _look(file)
        except OSError:
            return None
        times = (found.st_mtime_ns, found.st_ctime_ns)
        # A file's content can be changed and its time of modification set back; not the other one.
        mark.update(f"{found.st_size} {times} {found.st_ino} ".encode())
        mark.update(os.fsencode(file.absolute()) + b"\n")
        newest, num_bytes = max(newest, *times), num_bytes + found.st_size
    return _State(mark.hexdigest(), newest, num_bytes)


def _look(file: Path) -> os.stat_result:
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
