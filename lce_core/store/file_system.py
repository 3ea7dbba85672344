"""Test whether a file system is suitable for LCE_HOME, for `lce run` and `lce doctor`.

A store requires exclusive locks (flock), atomic renames, and file times that agree with this
host's. One host cannot test whether its locks exclude other hosts, so mount options stand for it.
"""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lce_core.errors import SpecError
from lce_core.store.lease import STALE_SECONDS

MAX_SKEW_SECONDS = STALE_SECONDS / 3
"""Largest accepted clock difference; with a larger one a live lease owner could count as dead."""

_MOUNTS = Path("/proc/self/mounts")
_OBJECT_STORES = ("s3fs", "s3ql", "mountpoint-s3", "gcsfuse", "rclone", "goofys", "blobfuse")
_LOCK_SCRIPT = """
import fcntl, sys
with open(sys.argv[1], "rb+") as file:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(3)
"""


@dataclass(frozen=True)
class Mount:
    """The mounted file system that contains a folder."""

    kind: str
    """Type such as ext4 or nfs4; "unknown" if /proc does not list it."""
    options: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Probe:
    """Result of probing a folder's file system."""

    mount: Mount
    skew: float
    """Seconds by which the file system's clock is ahead of this host's."""
    lacks: tuple[str, ...]
    """Faults, as phrases for an error message."""


def probe(folder: Path) -> Probe:
    """Test an existing folder's file system; write only to a temporary subfolder."""
    mount, skew, lacks = mount_of(folder), 0.0, list[str]()
    aside = folder / f".probe-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    aside.mkdir()
    try:
        lacks += _by_options(mount)
        for trial in (_locks, _renames):
            try:
                fault = trial(aside)
            except OSError as error:
                tested = trial.__name__.removeprefix("_")
                fault = f"the test of its {tested} failed ({error.strerror or error})"
            lacks += [fault] if fault else []
        skew = _skew(aside)
        if abs(skew) > MAX_SKEW_SECONDS:
            lacks.append(
                f"its clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this host's"
            )
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Probe(mount, skew, tuple(lacks))


def require_fit(folder: Path) -> None:
    if lacks := probe(folder).lacks:
        raise SpecError(
            f"LCE_HOME {folder}",
            f"an unsuitable file system: {'; '.join(lacks)}",
            "a file system with flock across hosts, atomic renames and a synchronised clock",
            "set LCE_HOME to another file system, or follow the remedy that `lce doctor` prints",
        )


def mount_of(folder: Path) -> Mount:
    path, found, longest = folder.resolve(), Mount("unknown"), -1
    with contextlib.suppress(OSError):
        # Not psutil, which reads /etc/mtab where that is a file: it may be stale.
        for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
            _, point, kind, options, *_ = line.split(" ")
            # /proc writes a space as \\040.
            point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), point)
            depth = len(Path(point).parts)
            # A later mount on the same mount point hides earlier ones, hence >=.
            if path.is_relative_to(point) and depth >= longest:
                found, longest = Mount(kind, frozenset(options.split(","))), depth
    return found


def _by_options(mount: Mount) -> Iterator[str]:
    local = {"nolock", "local_lock=all", "local_lock=flock"} & mount.options
    if mount.kind.startswith("nfs") and local:
        yield f"its locks hold within one host only (NFS mounted with {', '.join(sorted(local))})"
    if mount.kind == "lustre" and "localflock" in mount.options:
        yield "its locks hold within one host only (Lustre mounted with localflock)"
    if any(name in mount.kind for name in _OBJECT_STORES):
        yield f"it is an object store ({mount.kind}), which has neither locks nor atomic renames"


def _locks(aside: Path) -> str | None:
    path = aside / "lock"
    path.write_bytes(b"lce")
    with path.open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return f"it has no flock ({error.strerror})"
        other = subprocess.run([sys.executable, "-ISc", _LOCK_SCRIPT, str(path)])
    return None if other.returncode == 3 else "its flock does not exclude other processes"


def _renames(aside: Path) -> str | None:
    """Test that readers keep a replaced file's old content, and that a folder moves as a whole."""
    old, new = aside / "old", aside / "new"
    old.write_text("old", encoding="utf-8")
    new.write_text("new", encoding="utf-8")
    with old.open(encoding="utf-8") as reader:
        new.replace(old)
        if new.exists() or old.read_text(encoding="utf-8") != "new" or reader.read() != "old":
            return "its renames do not replace a file as a whole"
    attempt, final = aside / "attempt", aside / "final"
    attempt.mkdir()
    (attempt / "record").write_text("whole", encoding="utf-8")
    attempt.rename(final)
    if attempt.exists() or (final / "record").read_text(encoding="utf-8") != "whole":
        return "its renames do not move a folder as a whole"
    return None


def _skew(aside: Path) -> float:
    path = aside / "clock"
    path.touch()
    os.utime(path, (1, 1))
    before = time.time()
    os.utime(path)
    after, dated = time.time(), path.stat().st_mtime
    # Some file systems store times with a resolution of one or two seconds.
    if before - 2.0 <= dated <= after + 2.0:
        return 0.0
    return dated - (before + after) / 2
