from pathlib import Path

import pytest

from tests.support.training_jobs import packed_rows


@pytest.fixture(scope="session")
def rows(tmp_path_factory) -> Path:
    return packed_rows(tmp_path_factory.mktemp("rows"))
