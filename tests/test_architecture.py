"""Rules that no single file can show: who imports whom, which names are free, what is locked."""

import ast
import functools
import importlib.metadata
import itertools
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.repository import ROOT

PACKAGES = ("lce_core", "catalog", "tasks", "flows", "dashboards", "lce")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> Iterator[str]:
    """Dotted names of the modules a file imports, at any depth."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def normalised(requirement: str) -> str:
    """Distribution name of a requirement, as PEP 503 compares them."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def pins() -> dict[str, str]:
    """Locked version of every distribution in requirements.txt."""
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


@functools.cache
def owners() -> Mapping[str, list[str]]:
    """Distributions that install a top-level name."""
    return importlib.metadata.packages_distributions()


def test_imports_point_one_way():
    run_code("from importlinter.cli import lint_imports_command as c; c()")


def run_code(code: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_our_packages_and_files_shadow_no_other_modules_and_no_other_shadows_them():
    assert {
        name: owners().get(name) for name in PACKAGES if set(owners().get(name, [])) - {"lce"}
    } == {}
    assert [name for name in PACKAGES if (ROOT / f"{name}.py").exists()] == []
    # Prefect puts a flow file's folder at the head of sys.path and leaves it there.
    taken = (set(owners()) - set(PACKAGES)) | set(sys.stdlib_module_names)
    importable = [path.parent if path.stem == "__init__" else path for path in SOURCES]
    ours = [path for path in importable if path.parent in (ROOT / "flows", ROOT / "tasks")]
    assert [relative(path) for path in ours if path.stem in taken] == []


def test_files_of_tests_have_names_of_their_own() -> None:
    # pytest imports them by name, and only a run of all of them would say that two are alike.
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, number in names.items() if number > 1] == []


def test_nothing_edits_sys_path():
    edits = re.compile(r"sys\.path\b(?!_)|site\.addsitedir")
    files = [*SOURCES, *(ROOT / "perf").glob("*.py")]
    assert [relative(p) for p in files if edits.search(p.read_text(encoding="utf-8"))] == []


def test_every_imported_distribution_is_declared():
    project = PROJECT["project"]
    extras = [project["optional-dependencies"][name] for name in ("dashboard", "short-context")]
    declared = {normalised(one) for one in itertools.chain(project["dependencies"], *extras)}
    # A user may compile the first (docs/training.md) and install the others (docs/runtimes.md).
    declared |= {"flash-attn", "mlx", "mlx-lm"}
    undeclared = set()
    for path in SOURCES:
        for top in {name.partition(".")[0] for name in imports(path)}:
            if top in sys.stdlib_module_names or top in PACKAGES:
                continue
            found = {normalised(name) for name in owners().get(top, [top])}
            if not found & declared:
                undeclared.add(f"{relative(path)}: {top}")
    assert sorted(undeclared) == []


@pytest.mark.parametrize(
    ("imported", "slow"),
    [
        ("catalog.queries", "mlflow numpy pandas pyarrow torch"),
        ("lce.cli, flows.servers.dashboard", "numpy pandas prefect pyarrow torch transformers"),
        ("tasks.workers, flows.settings", "ray"),
    ],
    ids=["queries", "dashboard", "runs"],
)
def test_what_starts_often_loads_nothing_slow(imported, slow):
    run_code(f"import {imported}, sys; assert not {set(slow.split())} & set(sys.modules)")


def test_the_locked_versions_satisfy_what_is_declared():
    locked = pins()
    project = PROJECT["project"]
    for line in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        requirement = Requirement(line)
        version = locked.get(normalised(requirement.name))
        assert version, f"requirements.txt does not lock {requirement.name}"
        assert requirement.specifier.contains(version), f"{line}: locked at {version}"
