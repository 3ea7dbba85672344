"""What a store needs of its file system: each thing taken away once, and found missing."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lce_core.errors import SpecError
from lce_core.store import file_system
from lce_core.store.file_system import Mount, mount_of, probe, require_fit


def test_a_local_disk_has_it_all_and_keeps_nothing_of_the_trial(tmp_path: Path) -> None:
    found = probe(tmp_path)
    assert found.lacks == ()
    assert found.skew == 0.0
    assert list(tmp_path.iterdir()) == []
    require_fit(tmp_path)


def refused(*_: Any) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def without_locks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fcntl, "flock", refused)


def with_locks_for_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fcntl, "flock", lambda *_: None)


def without_rename(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Path, "rename", refused)


def with_renames_that_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Path, "replace", lambda self, to: shutil.copyfile(self, to))


def with_folders_that_are_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Path, "rename", lambda self, to: shutil.copytree(self, to))


def with_a_clock_behind(patch: pytest.MonkeyPatch) -> None:
    now = time.time
    patch.setattr(time, "time", lambda: now() + 60)


@pytest.mark.parametrize(
    ("take_away", "missing"),
    [
        (without_locks, r"it has no flock \(No locks available\)"),
        (with_locks_for_nobody, "does not exclude other processes"),
        (without_rename, r"the test of its renames failed \(No locks available\)"),
        (with_renames_that_copy, "do not replace a file as a whole"),
        (with_folders_that_are_copied, "do not move a folder as a whole"),
        (with_a_clock_behind, "its clock is 60 s behind this host's"),
    ],
)
def test_what_is_missing_is_named_and_refused(
    take_away: Callable[[pytest.MonkeyPatch], None],
    missing: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take_away(monkeypatch)
    with pytest.raises(SpecError, match=missing):
        require_fit(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("mount", "missing"),
    [
        (Mount("nfs4", frozenset({"rw", "local_lock=none"})), None),
        (Mount("nfs4", frozenset({"rw", "local_lock=all"})), "mounted with local_lock=all"),
        (Mount("nfs", frozenset({"nolock"})), "mounted with nolock"),
        (Mount("lustre", frozenset({"flock"})), None),
        (Mount("lustre", frozenset({"localflock"})), "mounted with localflock"),
        (Mount("ext4", frozenset({"nolock"})), None),
        (Mount("fuse.s3fs"), "an object store"),
        (Mount("fuse.sshfs"), None),
    ],
)
def test_locks_of_one_host_alone_are_read_off_the_mount(
    mount: Mount, missing: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "mount_of", lambda folder: mount)
    lacks = probe(tmp_path).lacks
    assert bool(lacks) == (missing is not None)
    assert missing is None or missing in lacks[0]


def test_the_innermost_mount_counts_and_of_two_on_one_folder_the_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts, shared = tmp_path / "mounts", tmp_path / "with space"
    shared.mkdir()
    written = str(shared).replace(" ", "\\040")
    lines = [
        "/dev/sda / ext4 rw 0 0",
        f"server:/a {written} nfs4 rw,nolock 0 0",
        f"server:/b {written} nfs4 rw,hard 0 0",
        f"server:/c {written}er nfs4 ro 0 0",
    ]
    mounts.write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(file_system, "_MOUNTS", mounts)
    assert mount_of(shared / "home") == Mount("nfs4", frozenset({"rw", "hard"}))
    assert mount_of(tmp_path).kind == "ext4"
    mounts.unlink()
    assert mount_of(shared) == Mount("unknown")
