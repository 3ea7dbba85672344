from pathlib import Path

import pytest

from lce_core.store.artifacts import Store


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "home")
    store.prepare()
    return store


@pytest.fixture
def text(tmp_path) -> Path:
    from tests.lce_core.study.smoke_plans import written  # needs packages that a GPU machine lacks

    return written(tmp_path / "text")
