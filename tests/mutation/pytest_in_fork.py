"""pytest over a copy of the tree, in a fork of a process that has imported the libraries already.

Forks share the libraries alone: each imports the project's own packages from its copy.
"""

import importlib
import multiprocessing
import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import Phase, settings

PROJECT = {"lce_core", "catalog", "tasks", "flows", "dashboards", "lce", "tests", "conftest"}
_LIBRARIES = (
    "accelerate",
    "duckdb",
    "hypothesis.extra.numpy",
    "pyarrow.parquet",
    "torch",
    "transformers.models.llama.modeling_llama",
    "transformers.models.phi.modeling_phi",
    "typer.testing",
)
_OPTIONS = ("-x", "-q", "-rfE", "--tb=short", "--timeout=120", "-p", "no:cacheprovider")
_PROFILE = "planted"
# Of the plug-ins only what the tests need.
_PLUGINS = (
    *("-p", "pytest_timeout"),
    *("-p", "_hypothesis_pytestplugin", f"--hypothesis-profile={_PROFILE}"),
    *("-p", "xdist.plugin", "--numprocesses=0"),  # the project's own options name it
)


class RunError(Exception):
    """pytest could not say whether the tests pass."""


def import_libraries() -> None:
    """Imports what tests import, under the settings that the suite makes before."""
    os.environ["OMP_NUM_THREADS"] = "1"
    conftest = importlib.import_module("tests.conftest")
    conftest.pytest_unconfigure()  # its folder is made again by each run
    for library in _LIBRARIES:
        importlib.import_module(library)


def first_failure(copy: Path, tests: Iterable[str]) -> str | None:
    """The first of the quick tests that fails in the copy; None if all pass.

    Raises:
      RunError: pytest ended in any other way, as with an import that fails.
    """
    output = copy.with_name(f"{copy.name}.out")
    child = multiprocessing.get_context("fork").Process(target=_run, args=(copy, output, [*tests]))
    child.start()
    child.join()
    if child.exitcode == pytest.ExitCode.OK:
        return None
    printed = output.read_text("utf-8", errors="replace") if output.exists() else ""
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", printed, re.MULTILINE)
    if child.exitcode != pytest.ExitCode.TESTS_FAILED or failed is None:
        raise RunError(f"pytest ended with {child.exitcode}: {printed}")
    return failed[1]


def _run(copy: Path, output: Path, tests: list[str]) -> None:
    """Exit with pytest's code; this process has nothing else to do."""
    sys.stdout = sys.stderr = output.open("w", encoding="utf-8")
    for number in (1, 2):
        os.dup2(sys.stdout.fileno(), number)
    for name in [name for name in sys.modules if name.partition(".")[0] in PROJECT]:
        del sys.modules[name]
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    # Compiled files are told apart by the second, and two faults may fall into the same one.
    sys.dont_write_bytecode = True
    # The quick tests have to do without data sets.
    for hidden in ("LCE_TEST_DATA", "PYTEST_ADDOPTS"):
        os.environ.pop(hidden, None)
    os.environ |= {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(copy),
    }
    # A failure is enough. Nobody reads a smaller example, which would be sought for minutes.
    settings.register_profile(
        _PROFILE, settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate)
    )
    scratch = copy.with_name(f"{copy.name}.tmp")
    code = pytest.main([*_OPTIONS, *_PLUGINS, f"--basetemp={scratch}", *tests])
    shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(int(code))
