"""A finished home to disturb and a Prefect server, for tests that are not about them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.servers.temporary_server import client_settings, temporary_server
from tests.support.studies import copied_home


@pytest.fixture
def home(finished, tmp_path) -> Path:
    """A copy of the finished home, to be disturbed."""
    return copied_home(finished, tmp_path / "home")


@pytest.fixture(scope="session")
def server(finished, tmp_path_factory) -> Iterator[dict[str, str]]:
    """Where a Prefect server is that a run may use instead of its own, and what lets it in."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(finished / "prefect", folder / "prefect")
    with temporary_server(folder) as running:
        yield client_settings(folder, running.wait_ready(), running.secret)
