"""Workers, whose environment trainers inherit, start with the settings of torch's allocator."""

from __future__ import annotations

from pathlib import Path

import pytest

from lce_core.execution import Execution, allocator_settings
from tasks.ray_engine import cluster
from tasks.slots import Slot
from tasks.worker_process import _environment

NAME, OLD_NAME = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (NAME, OLD_NAME):
        monkeypatch.delenv(name, raising=False)


def test_workers_use_expandable_segments(tmp_path: Path) -> None:
    expected = "expandable_segments:True"
    assert _environment(Slot((0,)), Execution(home=tmp_path), ())[NAME] == expected
    assert cluster.environment()["env_vars"][NAME] == expected


@pytest.mark.parametrize("name", [NAME, OLD_NAME])
def test_the_users_own_settings_stay(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "max_split_size_mb:512")
    assert allocator_settings({name: ""}) == {}
    found = _environment(Slot((0,)), Execution(home=tmp_path), ())
    assert {key: value for key, value in found.items() if key in (NAME, OLD_NAME)} == {
        name: "max_split_size_mb:512"
    }
