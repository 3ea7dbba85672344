"""Settings of the whole suite: no telemetry, no hub, servers' homes away from the user's.

`pytest -m gpu` needs neither the extra `dev` nor servers: only files that have such tests are
imported, plug-ins of pytest's may be missing, and warnings of another torch are no failures.

They are set before any test module is imported, because Prefect, MLflow and the hub client read the
environment when they are imported.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.support.plugin_copies import plugins_removed_after

pytest_plugins = ["tests.support.finished_study"]

END_TO_END = "end_to_end"
BESIDE_IT = ("test_services.py", "test_sharding.py")
"""Take as long as the study that all end-to-end tests wait for, and do not need it: one is of
`make test`, the other for the most part of `make test-long`."""
MOST_PROCESSES = 4
"""Each imports torch, which takes longer than its share of a bare pytest beyond this."""
GPU_MARKS = ("pytest.mark.gpu", "tests.support.on_devices")
"""What stands in a file that has tests on a GPU."""
with contextlib.suppress(ImportError):  # on a machine with the GPU tests alone
    from hypothesis import settings

    # No example is timed: a machine that is busy is not a fault.
    settings.register_profile("untimed", settings.default, deadline=None)
    settings.load_profile("untimed")
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
for _name in ("LCE_HOME", "LCE_MLFLOW_URI", "MLFLOW_TRACKING_URI"):
    os.environ.pop(_name, None)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Takes the project's own options where the plug-in that knows them is missing."""
    # Under its own name, or its module's where an option loads it.
    if not any(map(pluginmanager.hasplugin, ("xdist", "xdist.plugin"))):
        for option in ("--numprocesses", "--dist"):
            parser.addoption(option, help="of pytest-xdist, which is not here")
        parser.addoption("--no-loadscope-reorder", action="store_true", help="likewise")
    if not any(map(pluginmanager.hasplugin, ("timeout", "pytest_timeout"))):
        parser.addini("timeout", "of pytest-timeout, which is not here")


def pytest_configure(config: pytest.Config) -> None:
    """Lets warnings pass where nothing but tests on a GPU is asked for."""
    if _gpu_alone(config):
        config.addinivalue_line("filterwarnings", "default")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files and folders without a test on a GPU if `-m gpu` selects nothing else.

    The conftest.py of a folder may import packages that a GPU machine does not have.
    """
    if not _gpu_alone(config):
        return None
    if collection_path.is_dir():
        return None if any(map(_has_gpu_tests, collection_path.rglob("test_*.py"))) else True
    return None if collection_path.suffix != ".py" or _has_gpu_tests(collection_path) else True


def _has_gpu_tests(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return any(mark in text for mark in GPU_MARKS)


def _gpu_alone(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "gpu")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Processes that share the tests: one where the command names files, else one a core."""
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return 0
    return min(os.cpu_count() or 1, MOST_PROCESSES)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what this machine cannot run; puts what takes long before what does not."""
    absent = {
        "data": None if os.environ.get("LCE_TEST_DATA") else "LCE_TEST_DATA names no folder",
        "gpu": None if not _wants_gpu(config, items) or _has_gpu() else "torch sees no CUDA device",
        "browser": None if shutil.which("chromium") else "no chromium on the PATH",
    }
    for item in items:
        for marker, reason in absent.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
    if hasattr(config, "workerinput"):
        # While one process ends a file that takes long, the other has short ones to do.
        slow = {item.path for item in items if any(map(item.get_closest_marker, ("slow", "long")))}
        first = next((item.path for item in items if END_TO_END in item.path.parts), None)
        items.sort(
            key=lambda item: (
                item.path != first,
                item.path.name not in BESIDE_IT,
                END_TO_END not in item.path.parts,
                item.path not in slow,
            )
        )


def _wants_gpu(config: pytest.Config, items: list[pytest.Item]) -> bool:
    if "not gpu" in config.option.markexpr:
        return False  # importing torch takes seconds
    return any(item.get_closest_marker("gpu") for item in items)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def pytest_unconfigure() -> None:
    """Removes the servers' homes at the end, in every process of the suite."""
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def _plugins_of_one_module() -> Iterator[None]:
    with plugins_removed_after():
        yield


@pytest.fixture(scope="session")
def test_data() -> Path:
    """Folder of real files for tests marked `data`."""
    return Path(os.environ["LCE_TEST_DATA"])


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the installed Chromium for tests marked `browser`."""
    return shutil.which("chromium") or ""


@pytest.fixture(scope="module")
def chrome(chromium: str) -> Iterator[Any]:
    """A running Chromium; Playwright allows one at a time in a process."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync"]
        yield playwright.chromium.launch(executable_path=chromium, args=flags)


@pytest.fixture(scope="session")
def made_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, Callable[[Path], None]], Path]:
    """A function that gives a folder which one process of the suite fills for all of them."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, fill: Callable[[Path], None]) -> Path:
        folder, filled = shared / name, shared / f"{name}.filled"
        with FileLock(shared / f"{name}.lock"):
            if not folder.exists():
                folder.mkdir()
                fill(folder)
                filled.touch()
        assert filled.exists(), f"{name}: another process of the suite failed to make it"
        return folder

    return made
