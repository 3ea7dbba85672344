"""The rules that no single file can show: who imports whom, which names are free, what is locked.

Strategy: read the source as syntax trees and ask the installed metadata; import in fresh
interpreters where what counts is what else gets loaded.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
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


def test_imports_point_one_way() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_owns_our_package_names(package: str) -> None:
    owners = importlib.metadata.packages_distributions().get(package, [])
    assert set(owners) <= {"lce"}, f"{package} is also installed by {owners}"


def test_files_of_flows_and_tasks_shadow_no_other_module() -> None:
    # Prefect puts a flow file's folder at the head of sys.path and leaves it there.
    installed = set(importlib.metadata.packages_distributions()) - set(PACKAGES)
    taken = installed | set(sys.stdlib_module_names)
    importable = [path.parent if path.stem == "__init__" else path for path in SOURCES]
    ours = [path for path in importable if path.parent in (ROOT / "flows", ROOT / "tasks")]
    assert [relative(path) for path in ours if path.stem in taken] == []


def test_no_file_beside_the_packages_shadows_them() -> None:
    assert [name for name in PACKAGES if (ROOT / f"{name}.py").exists()] == []


def test_files_of_tests_have_names_of_their_own() -> None:
    # pytest imports them by name, and only a run of all of them would say that two are alike.
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, number in names.items() if number > 1] == []


def test_nothing_edits_sys_path() -> None:
    edits = re.compile(r"sys\.path\b(?!_)|site\.addsitedir")
    files = [*SOURCES, *(ROOT / "perf").glob("*.py")]
    assert [relative(p) for p in files if edits.search(p.read_text(encoding="utf-8"))] == []


def test_every_imported_distribution_is_declared() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    listed = [
        *project["dependencies"],
        *extras["dashboard"],
        *extras["gpu"],
        *extras["short-context"],
    ]
    declared = {normalised(requirement) for requirement in listed}
    owners = importlib.metadata.packages_distributions()
    undeclared = set()
    for path in SOURCES:
        for top in {name.partition(".")[0] for name in imports(path)}:
            if top in sys.stdlib_module_names or top in PACKAGES:
                continue
            found = {normalised(name) for name in owners.get(top, [top])}
            if not found & declared:
                undeclared.add(f"{relative(path)}: {top}")
    assert sorted(undeclared) == []


@pytest.mark.parametrize(
    "module",
    [
        "lce_core.study.spec",
        "lce_core.study.study_file",
        "lce_core.registry",
        "lce_core.study.plan",
    ],
)
def test_reading_and_planning_load_no_torch(module: str) -> None:
    code = f"import {module}, sys; print(sorted({{'torch', 'transformers'}} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


def test_what_becomes_the_dashboard_loads_nothing_that_computes() -> None:
    slow = "{'numpy', 'pandas', 'prefect', 'pyarrow', 'torch', 'transformers'}"
    code = f"import lce.cli, flows.servers.dashboard, sys; print(sorted({slow} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


@pytest.mark.parametrize("folder", ["methods", "benchmarks", "models", "corpora"])
def test_every_plug_in_loads_without_torch(folder: str) -> None:
    names = sorted(path.stem for path in (ROOT / "lce_core" / folder).glob("[!_]*.py"))
    modules = ", ".join(f"lce_core.{folder}.{name}" for name in names)
    code = f"import {modules}, sys; print(sorted({{'torch', 'transformers'}} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


def test_the_locked_versions_satisfy_what_is_declared() -> None:
    locked = pins()
    project = PROJECT["project"]
    for line in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        requirement = Requirement(line)
        version = locked.get(normalised(requirement.name))
        assert version, f"requirements.txt does not lock {requirement.name}"
        assert requirement.specifier.contains(version), f"{line}: locked at {version}"


def test_the_installed_versions_are_the_locked_ones() -> None:
    installed = {
        normalised(found.name): found.version.partition("+")[0]
        for found in importlib.metadata.distributions()
    }
    differing = {
        name: (version, installed[name])
        for name, version in pins().items()
        if installed.get(name, version) != version
    }
    assert differing == {}
