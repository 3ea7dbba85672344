"""Jobs on packed rows, for all tests of training."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.training_jobs import job_maker, packed_rows


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed_rows(tmp_path_factory.mktemp("rows"))


@pytest.fixture
def make_job(rows: Path, tmp_path: Path) -> Any:
    return job_maker(rows, tmp_path)


@pytest.fixture
def every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each look at the clock find one more second gone, so that every step reports."""
    clock = count(0.0, 1.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
