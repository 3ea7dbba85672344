"""Jobs on packed rows, for all tests of training."""

from __future__ import annotations

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
