from pathlib import Path

import pytest

from lce_core.store.artifacts import Store
from tests.lce_core.study.smoke_plans import written


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "home")
    store.prepare()
    return store


@pytest.fixture
def text(tmp_path) -> Path:
    return written(tmp_path / "text")
