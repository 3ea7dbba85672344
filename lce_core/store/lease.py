"""Leases ensure that at most one live process computes a step.

A lease is a JSON file that names its owner process: host, boot id, PID namespace, pid and start
time. A process on the same host (same boot, same PID namespace) checks whether the owner is
running. Any other process checks the heartbeat: the owner touches the file every
`HEARTBEAT_SECONDS`, and counts as alive until it is `STALE_SECONDS` old by the file system's clock.
If the owner is dead, another process may take the lease over. Leases change under a lock (flock)
that is held only briefly and that the kernel releases if a process dies.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock

from lce_core.errors import LeaseLostError
from lce_core.store.odd_files import NOT_A_FILE, read_mapping, write_file

HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 90.0
"""Heartbeat age after which a process on another host or container counts as dead."""

_STALE: tuple[dict[str, Any], float] = ({}, math.inf)
"""Stands for a lease file with invalid content."""
_OURS: set[str] = set()


def is_alive(lease: dict[str, Any], heartbeat_age: float) -> bool:
    if any(lease.get(name) != value for name, value in _place().items()):
        return heartbeat_age < STALE_SECONDS
    try:
        pid, since = int(lease["pid"]), float(lease["started"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return False
    # A lease of this process that is missing in `_OURS` was released, but a file system error
    # prevented the removal of its file.
    return running(pid, since) is not None and (pid != os.getpid() or lease.get("token") in _OURS)


def locked(folder: Path) -> FileLock:
    return FileLock(folder / ".lock")


def is_held(folder: Path, name: str) -> bool:
    return _held(folder / f"{name}.json") is not None


def _held(path: Path) -> dict[str, Any] | None:
    held = _read(path)
    return held[0] if held is not None and is_alive(*held) else None


@dataclass(frozen=True)
class Holder:
    """The live process that holds a lease."""

    host: str
    pid: int
    since: float | None
    """Acquisition time in seconds since the epoch, by the holder's clock."""


def holders(folder: Path) -> dict[str, Holder]:
    found = {}
    for path in sorted(folder.glob("*.json")):
        if content := _held(path):
            since = content.get("since")
            known = since if isinstance(since, int | float) else None
            found[path.stem] = Holder(content["host"], content["pid"], known)
    return found


class Lease:
    """The exclusive right to compute one step. Call `require` before the result is saved."""

    def __init__(self, path: Path, token: str, *, is_takeover: bool) -> None:
        self._path, self._token = path, token
        self.is_takeover = is_takeover
        """True if taken over from a dead process, which may have left files."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    @classmethod
    def acquire(cls, folder: Path, name: str) -> Lease | None:
        """Acquire the lease, also a dead process's; None at once if a live process holds it."""
        path = folder / f"{name}.json"
        # Check and acquire under one lock: if two processes find the owner dead, only one of them
        # takes the lease over.
        with locked(folder):
            if is_held(folder, name):
                return None
            is_takeover = os.path.lexists(path)
            # The token distinguishes leases of one process and detects a takeover.
            token = uuid.uuid4().hex
            process = {"pid": os.getpid(), "started": started(os.getpid())}
            content = {**_place(), **process, "token": token, "since": time.time()}
            _OURS.add(token)  # before the file is visible, or `is_alive` would call it dead
            try:
                write_file(path, json.dumps(content).encode())  # readers take no lock
            except OSError:
                _OURS.discard(token)
                raise
        return cls(path, token, is_takeover=is_takeover)

    def still_ours(self) -> bool:
        """Return True if no other process has taken the lease over, so far.

        Without heartbeats for `STALE_SECONDS` another process may do so right after the call, and
        both may commit the step. This is safe: both computed the same numbers, and each commits by
        renaming a complete folder into place.
        """
        held = _read(self._path)
        return held is not None and held[0].get("token") == self._token

    def require(self) -> None:
        if not self.still_ours():
            raise LeaseLostError(
                self._path,
                "a lease that another process has taken over or removed, because this process sent"
                f" no heartbeat for {STALE_SECONDS:.0f} s",
                "the lease of this process",
                "let the other process compute the step; the result of this process is discarded",
            )

    def __enter__(self) -> Lease:
        try:
            self._thread.start()
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Stop the heartbeat and remove the lease file, unless another process took it over."""
        self._stop.set()
        try:
            # Without the lock, another process could take over between the check and the removal,
            # which would then remove the lease file of that process.
            with locked(self._path.parent):
                if self.still_ours():
                    self._path.unlink(missing_ok=True)
        finally:
            _OURS.discard(self._token)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            # A brief file server error must not end the heartbeat of a run that takes days.
            with contextlib.suppress(OSError):
                # If another process takes over between the two calls, the second one refreshes the
                # heartbeat of a live owner, which is harmless.
                if self.still_ours():
                    os.utime(self._path)


def _read(path: Path) -> tuple[dict[str, Any], float] | None:
    """Return content and heartbeat age of a lease file; None without one, `_STALE` if invalid."""
    try:
        content = read_mapping(path)
        age = _now_of_file_system(path.parent) - path.stat().st_mtime
    except OSError as error:
        # The file is missing, was just removed by another host (ESTALE), or is not a regular file.
        if error.errno in NOT_A_FILE:
            return None
        raise
    except ValueError:
        return _STALE
    if not isinstance(content.get("host"), str) or not isinstance(content.get("pid"), int):
        return _STALE
    return content, age


def _now_of_file_system(folder: Path) -> float:
    # The clocks of hosts differ. The clock that dates heartbeats also dates a file touched now.
    clock = folder / ".clock"
    try:
        clock.touch()
    except OSError as error:
        # A reader without write permission falls back to the local clock. Raise other errors: on a
        # read-only file system, for example, no lease would ever become stale, and a run waiting
        # for one would wait forever.
        if error.errno in (errno.EACCES, errno.EPERM):
            return time.time()
        raise
    return clock.stat().st_mtime


def _place() -> dict[str, Any]:
    """Return host, boot id and PID namespace, within which a pid identifies one process."""
    pid_namespace = None
    with contextlib.suppress(OSError):
        pid_namespace = Path("/proc/self/ns/pid").stat().st_ino
    return {"host": socket.gethostname(), "boot": _boot_id(), "pid_namespace": pid_namespace}


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return str(psutil.boot_time())


def started(pid: int) -> float:
    """Return a process's start time in seconds since boot; since the epoch if there is no /proc.

    Start times since the epoch change when a user sets the clock.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        # The start time is field 22 of proc(5). Split after the last ")", because field 2, the
        # command in parentheses, may contain spaces and parentheses.
        ticks = int(stat.rpartition(")")[2].split()[19])
        return ticks / os.sysconf("SC_CLK_TCK")
    return float(psutil.Process(pid).create_time())


def running(pid: int, at: float) -> psutil.Process | None:
    """Return the process with this pid and start time, or None; the system reuses pids."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if abs(started(pid) - at) < 1.0 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None
