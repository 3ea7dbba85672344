"""Settings of the whole suite: no telemetry, no hub, servers' homes away from the user's.

`pytest -m gpu` needs neither the extra `dev` nor servers: only files that have such tests are
imported, plug-ins of pytest's may be missing, and warnings of another torch are no failures.

They are set before any test module is imported, because Prefect, MLflow and the hub client read the
environment when they are imported.
"""

import contextlib
import os
import re
import shlex
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.support.plugin_copies import plugins_removed_after

pytest_plugins = ["tests.support.finished_study", "tests.support.program_users"]

END_TO_END = "end_to_end"
MOST_PROCESSES = 4
"""Each imports torch, which takes longer than its share of a bare pytest beyond this."""
FIXTURES = {"data": "test_data", "browser": "chromium"}
"""Marks that every test with these fixtures gets."""
GPU_MARKS = ("pytest.mark.gpu", "tests.support.on_devices")
"""What stands in a file that has tests on a GPU."""
with contextlib.suppress(ImportError):  # on a machine with the GPU tests alone
    from hypothesis import settings

    # No example is timed: a machine that is busy is not a fault.
    settings.register_profile(
        "fixed", derandomize=True, database=None, deadline=None, max_examples=25
    )
    settings.register_profile("random", deadline=None, max_examples=200, print_blob=True)
    settings.load_profile("fixed")
_HOME = Path(tempfile.mkdtemp(prefix="lce-tests-"))
_PASSED_ON = re.compile(
    "PATH|TMPDIR|USER|LOGNAME|VIRTUAL_ENV|CI|LCE_(DRAWS|TEST_DATA)|LD_LIBRARY_PATH"
    "|(CUDA|NVIDIA|OPENBLAS|PIP|PYENV|PYTEST)_.*"
)
"""The only variables of the user's that tests see, and the programs they start."""

os.umask(0o022)
for _name in [_name for _name in os.environ if not _PASSED_ON.fullmatch(_name)]:
    del os.environ[_name]
os.environ.update(
    DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    HOME=str(_HOME),
    LANG="C.UTF-8",
    MLFLOW_DISABLE_TELEMETRY="true",
    OMP_NUM_THREADS="1",
    PREFECT_HOME=str(_HOME / "prefect"),
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
    TERM="xterm",
    TOKENIZERS_PARALLELISM="false",
    TZ="UTC",
)
time.tzset()


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what needs data or a browser, skips what cannot run here, puts slow files first."""
    absent = {
        "data": None if os.environ.get("LCE_TEST_DATA") else "LCE_TEST_DATA names no folder",
        "gpu": None if not _wants_gpu(config, items) or _has_gpu() else "torch sees no CUDA device",
        "browser": None if shutil.which("chromium") else "no chromium on the PATH",
    }
    for item in items:
        for marker, fixture in FIXTURES.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
        for marker, reason in absent.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
    if hasattr(config, "workerinput"):
        # While one process ends a file that takes long, the other has short ones to do. While one
        # runs the small study, no other should wait for it.
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        waits = {item.path for item in items if "migrated" in getattr(item, "fixturenames", ())}
        items.sort(
            key=lambda item: (
                END_TO_END not in item.path.parts,
                item.path not in slow,
                item.path in waits,
            )
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says why tests were skipped, a line for each reason, and how to repeat those that failed."""
    skipped = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple)
    )
    for reason, number in sorted(skipped.items()):
        terminalreporter.write_line(f"{number} skipped: {reason}")
    reports = (terminalreporter.stats.get(kind, ()) for kind in ("failed", "error"))
    if failed := sorted({report.nodeid for kind in reports for report in kind}):
        terminalreporter.write_line("To repeat what failed:")
        terminalreporter.write_line(f"  .venv/bin/python -m pytest -m '' {shlex.join(failed)}")


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
        browser: Any = playwright.chromium.launch(executable_path=chromium, args=flags)
        new_context = browser.new_context

        def patient_context(**options: Any) -> Any:
            context = new_context(**options)
            context.set_default_timeout(600_000)  # milliseconds; for a machine ten times slower
            return context

        browser.new_context = patient_context
        browser.new_page = lambda **options: patient_context(**options).new_page()
        yield browser


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


@pytest.fixture
def inference() -> Iterator[None]:
    """Record no gradients during a test."""
    import torch

    with torch.no_grad():
        yield
