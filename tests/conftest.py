"""Settings of the whole suite: no telemetry, no hub, servers' homes away from the user's.

They are set before any test module is imported, because Prefect, MLflow and the hub client read the
environment when they are imported.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_HOME = Path(tempfile.mkdtemp(prefix="lce-tests-"))

os.environ.update(
    DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    MLFLOW_DISABLE_TELEMETRY="true",
    PREFECT_HOME=str(_HOME / "prefect"),
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
    TOKENIZERS_PARALLELISM="false",
)
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("LCE_HOME", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what this machine cannot run, and says what is missing."""
    absent = {
        "data": None if os.environ.get("LCE_TEST_DATA") else "LCE_TEST_DATA names no folder",
        "browser": None if shutil.which("chromium") else "no chromium on the PATH",
    }
    for item in items:
        for marker, reason in absent.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def test_data() -> Path:
    """Folder of real files for tests marked `data`."""
    return Path(os.environ["LCE_TEST_DATA"])


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the installed Chromium for tests marked `browser`."""
    return shutil.which("chromium") or ""


@pytest.fixture(scope="session", autouse=True)
def _homes_removed() -> Iterator[None]:
    """Removes the servers' homes at the end."""
    yield
    shutil.rmtree(_HOME, ignore_errors=True)
