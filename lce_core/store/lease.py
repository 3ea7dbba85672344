"""Leases: at most one live process computes a step.

A lease is a small JSON file naming its owner: host, boot id, PID namespace, pid, the pid's start
time. Where all of the first three agree an owner is alive exactly if that process is. From anywhere
else, be it another host or another container on this one, whose pids mean other processes, it is
alive while its heartbeat (the file's modification time, by the clock of the file system) is fresh.
Taking, taking over and releasing all happen under one short kernel lock, which the kernel frees
when its holder dies; a lease file itself may outlive its owner and is then stale. The file system
has to have such locks (flock) and renames that replace.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from filelock import FileLock

from lce_core.errors import LeaseLostError
from lce_core.store.odd_files import NOT_A_FILE, put, read_mapping
from lce_core.store.processes import running, started

HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 90.0
"""A lease from another host or container is stale after this long without a heartbeat."""

_OURS: set[str] = set()
"""Tokens of the leases that this process has taken and not given back."""


def owner() -> dict[str, Any]:
    """This process, so that another one can tell whether it still lives."""
    return {
        **_place(),
        "pid": os.getpid(),
        "started": started(os.getpid()),
    }


def is_alive(lease: dict[str, Any], heartbeat_age: float) -> bool:
    """Whether the owner of a lease still works on it."""
    if any(lease.get(name) != value for name, value in _place().items()):
        return heartbeat_age < STALE_SECONDS
    try:
        pid, since = int(lease["pid"]), float(lease["started"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return False
    # One of ours that could not be removed, because the file system failed, is nobody's.
    return running(pid, since) is not None and (pid != os.getpid() or lease.get("token") in _OURS)


def locked(folder: Path) -> FileLock:
    """The lock under which leases of `folder` are taken, released and judged."""
    return FileLock(folder / ".lock")


def is_held(folder: Path, name: str) -> bool:
    """Whether a live process holds the lease `name`."""
    held = _read(folder / f"{name}.json")
    return held is not None and is_alive(*held)


@dataclass(frozen=True)
class Holder:
    """Who holds a lease, for people."""

    host: str
    pid: int
    since: float | None
    """Seconds since the epoch by the holder's clock; None of one that does not say."""


def holders(folder: Path) -> dict[str, Holder]:
    """Live holders of all leases in `folder`, by the lease's name."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        held = _read(path)
        if held is not None and is_alive(*held):
            content = held[0]
            host, pid, since = (content.get(name) for name in ("host", "pid", "since"))
            found[path.stem] = Holder(
                str(host),
                pid if isinstance(pid, int) else 0,
                since if isinstance(since, int | float) else None,
            )
    return found


class Lease:
    """The right to compute one step, renewed by a heartbeat until released.

    Used as a context manager. `still_ours` must hold before anything is committed.
    """

    def __init__(self, path: Path, token: str, *, is_takeover: bool) -> None:
        self._path, self._token = path, token
        self.is_takeover = is_takeover
        """Whether a dead owner held it, who may have left something half done."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    @classmethod
    def acquire(cls, folder: Path, name: str) -> Lease | None:
        """Takes the lease `name`, also from a dead owner; None while a live process holds it."""
        path = folder / f"{name}.json"
        # Judged and taken under one lock: of two processes that find an owner dead, one gets it.
        with locked(folder):
            if is_held(folder, name):
                return None
            is_takeover = os.path.lexists(path)
            # The token tells apart two leases of one process, and one that was taken over.
            token = uuid.uuid4().hex
            aside = folder / f".{name}.{token}"
            # Readers take no lock; thanks to the rename they never see half a file.
            content = {**owner(), "token": token, "since": time.time()}
            _OURS.add(token)  # before anybody can read it
            try:
                aside.write_text(json.dumps(content), encoding="utf-8")
                put(aside, path)
            except OSError:
                _OURS.discard(token)
                with contextlib.suppress(OSError):
                    aside.unlink(missing_ok=True)  # a full disk would fill up with them
                raise
        return cls(path, token, is_takeover=is_takeover)

    def still_ours(self) -> bool:
        """Whether no other process has taken the lease over.

        An answer about now, not a lock. A commit that follows at once may still meet another's only
        if this process was silent past `STALE_SECONDS`; both have then computed the same numbers,
        and each puts a whole folder in place.
        """
        held = _read(self._path)
        return held is not None and held[0].get("token") == self._token

    def require(self) -> None:
        """Raises LeaseLostError if another process has taken the lease over."""
        if not self.still_ours():
            raise LeaseLostError(
                self._path,
                "the lease of another process, which took this step over",
                "the lease of this process",
                "let the other process finish",
            )

    def __enter__(self) -> Lease:
        try:
            self._thread.start()
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Gives the lease back, if it is still ours; nothing where that was done before."""
        self._stop.set()
        try:
            # Under the lock, lest the file of someone who takes over in between be removed.
            with locked(self._path.parent):
                if self.still_ours():
                    self._path.unlink(missing_ok=True)
        finally:
            _OURS.discard(self._token)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            # A file server that hiccups must not end the heartbeat of a run of days.
            with contextlib.suppress(OSError):
                # Taken over in between, the beat freshens a live owner's file: no harm.
                if self.still_ours():
                    os.utime(self._path)


def _read(path: Path) -> tuple[dict[str, Any], float] | None:
    try:
        content = read_mapping(path)
        age = _now_of_file_system(path.parent) - path.stat().st_mtime
    except OSError as error:
        # Not there, removed by another host while it was read (ESTALE), or no file at all.
        if error.errno in NOT_A_FILE:
            return None
        raise
    except ValueError:
        # No lease: nobody's, and as old as can be, so the next one may take it.
        return {}, time.time()
    if not isinstance(content.get("host"), str) or not isinstance(content.get("pid"), int):
        return {}, time.time()  # no lease either
    return content, age


def _now_of_file_system(folder: Path) -> float:
    # Hosts' clocks differ; a file touched now is dated by the same clock as the heartbeats.
    clock = folder / ".clock"
    try:
        clock.touch()
    except OSError as error:
        # Somebody else's store: who only looks has no better clock. A store that takes no writes
        # from anybody is an error: a run that waits for others' leases would wait without end.
        if error.errno in (errno.EACCES, errno.EPERM):
            return time.time()
        raise
    return clock.stat().st_mtime


def _place() -> dict[str, Any]:
    """Within what a pid names one process: a kernel since its start, and a PID namespace of it."""
    return {
        "host": socket.gethostname(),
        "boot": _boot_id(),
        "pid_namespace": _pid_namespace(),
    }


def _pid_namespace() -> int | None:
    """Number of this process's PID namespace, unique on its kernel; None where there are none."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return str(psutil.boot_time())
