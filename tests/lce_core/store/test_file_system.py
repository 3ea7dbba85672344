"""What a store needs of its file system: each thing taken away once, and found missing."""

import errno
import fcntl
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from lce_core.errors import SpecError
from lce_core.store import file_system
from lce_core.store.file_system import Mount, mount_of, probe, require_fit


def test_a_local_disk_has_it_all_and_keeps_nothing_of_the_trial(tmp_path):
    found = probe(tmp_path)
    assert found.lacks == ()
    assert found.skew == 0.0
    assert list(tmp_path.iterdir()) == []
    require_fit(tmp_path)


def refused(*_: Any) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize(
    ("place", "name", "instead", "missing"),
    [
        (fcntl, "flock", refused, r"it has no flock \(No locks available\)"),
        (fcntl, "flock", lambda *_: None, "does not exclude other processes"),
        (Path, "rename", refused, r"the test of its renames failed \(No locks available\)"),
        (Path, "replace", shutil.copyfile, "do not replace a file as a whole"),
        (Path, "rename", shutil.copytree, "do not move a folder as a whole"),
        (time, "time", lambda now=time.time: now() + 60, "its clock is 60 s behind this host's"),
    ],
)
def test_what_is_missing_is_named_and_refused(place, name, instead, missing, tmp_path, monkeypatch):
    monkeypatch.setattr(place, name, lambda *arguments: instead(*arguments))
    with pytest.raises(SpecError, match=missing):
        require_fit(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("mount", "missing"),
    [
        (Mount("nfs4", frozenset({"rw", "local_lock=none"})), None),
        (Mount("nfs4", frozenset({"rw", "local_lock=all"})), "mounted with local_lock=all"),
        (Mount("lustre", frozenset({"localflock"})), "mounted with localflock"),
        (Mount("ext4", frozenset({"nolock"})), None),
        (Mount("fuse.s3fs"), "an object store"),
    ],
)
def test_locks_of_one_host_alone_are_read_off_the_mount(mount, missing, tmp_path, monkeypatch):
    monkeypatch.setattr(file_system, "mount_of", lambda folder: mount)
    lacks = probe(tmp_path).lacks
    assert bool(lacks) == (missing is not None)
    assert missing is None or missing in lacks[0]


def test_the_innermost_mount_counts_and_of_two_on_one_folder_the_later(tmp_path, monkeypatch):
    mounts, shared = tmp_path / "proc" / "self" / "mounts", tmp_path / "with space"
    shared.mkdir()
    mounts.parent.mkdir(parents=True)
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
