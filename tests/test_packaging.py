"""The wheel holds what a run needs and nothing else.

Strategy: build it with the backend in this environment (no isolation, no network), then import from
the wheel's contents outside the checkout.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.repository import ROOT

PACKAGES = ("lce_core", "catalog", "tasks", "flows", "dashboards")
IGNORED = {"__pycache__"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    result = subprocess.run(
        [*command, str(out)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    (built,) = out.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_holds_every_file_of_the_five_packages(wheel: zipfile.ZipFile) -> None:
    ours = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and not IGNORED & set(path.parts)
    }
    packed = {name for name in wheel.namelist() if not name.startswith("lce-")}
    assert packed == ours


@pytest.mark.parametrize(
    "pattern",
    [
        "catalog/sql/*.sql",
        "catalog/reference/*.csv",
        "flows/studies/*.yaml",
        "lce_core/recipes/*.yaml",
        "*/py.typed",
    ],
)
def test_the_wheel_ships_data_files(wheel: zipfile.ZipFile, pattern: str) -> None:
    shipped = [name for name in wheel.namelist() if Path(name).match(pattern)]
    assert shipped


def test_the_wheel_registers_the_command_and_the_prefect_plug_in(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    text = wheel.read(name).decode()
    assert "[console_scripts]\nlce = flows.cli:main" in text
    assert "[prefect.plugins]\nlce = flows.prefect_plugin" in text


def test_the_wheel_refuses_upload(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
    assert "Classifier: Private :: Do Not Upload" in wheel.read(name).decode()


@pytest.mark.slow
def test_the_unpacked_wheel_reads_a_shipped_study_outside_the_checkout(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    wheel.extractall(tmp_path / "site")
    code = (
        "import pathlib, sys; import flows; from lce_core.study.study_file import load_study;"
        "assert pathlib.Path(flows.__file__).is_relative_to(sys.argv[1]);"
        "folder = pathlib.Path(flows.__file__).parent / 'studies';"
        "print(*[load_study(path).study for path in sorted(folder.glob('*.yaml'))])"
    )
    site = tmp_path / "site"
    result = subprocess.run(
        [sys.executable, "-c", code, str(site)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "toy" in result.stdout.split()
