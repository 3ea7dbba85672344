"""What `lce doctor` says of the file system under LCE_HOME."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.servers.doctor import _file_system
from lce_core.store import file_system
from lce_core.store.file_system import Mount


def test_a_file_system_that_fits_is_named_with_its_clock(tmp_path: Path) -> None:
    check = _file_system(tmp_path)
    assert check.ok
    assert check.detail.endswith(": locks and renames work, clock offset +0.0 s")
    assert _file_system(tmp_path / "none").ok
    assert list(tmp_path.iterdir()) == []


def test_one_that_does_not_is_refused_with_the_reason_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = Mount("lustre", frozenset({"localflock"}))
    monkeypatch.setattr(file_system, "mount_of", lambda folder: mount)
    check = _file_system(tmp_path)
    assert not check.ok
    assert "within one host only (Lustre mounted with localflock)" in check.detail
    assert "Lustre with flock" in check.remedy
