"""The wheel holds what a run needs, `make` installs what the lock has, and neither anything else.

Strategy: build the wheel with the backend in this environment (no isolation, no network), then
import from its contents outside the checkout. Run the Makefile over a small lock whose packages lie
in a folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.repository import ROOT

PACKAGES = ("lce_core", "catalog", "tasks", "flows", "dashboards", "lce")
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


def test_the_wheel_holds_every_file_of_the_packages(wheel: zipfile.ZipFile) -> None:
    ours = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and not IGNORED & set(path.parts)
    }
    packed = {name for name in wheel.namelist() if not name.startswith("lce-")}
    assert packed == ours


def test_the_wheel_registers_the_command_and_the_prefect_plug_in(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    text = wheel.read(name).decode()
    assert "[console_scripts]\nlce = lce.cli:main" in text
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


LOCK = (ROOT / "requirements.txt").read_text(encoding="utf-8")
LOCKED = re.findall(
    r"^([a-z0-9-]+)==(\S+)(?: ; (.*?))? \\\n((?:    --hash=.*\n)+)", LOCK, re.MULTILINE
)


def test_every_package_of_the_lock_has_a_version_and_sha256_hashes() -> None:
    assert len(LOCKED) == len(re.findall(r"^[^\s#]", LOCK, re.MULTILINE)) > 200
    for name, _, _, hashes in LOCKED:
        found = re.findall(r"--hash=sha256:([0-9a-f]{64})(?: \\)?\n", hashes)
        assert len(found) == hashes.count("--hash") == len(set(found)), name


def test_other_builds_of_torch_go_without_the_libraries_that_only_linux_needs() -> None:
    (pattern,) = re.findall(r"^CUDA := (.*)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    of_torch = {name for name, *_ in LOCKED if re.fullmatch(pattern, name)}
    assert {"torch", "triton", "nvidia-cudnn-cu13"} <= of_torch
    of_linux = {name for name, _, marker, _ in LOCKED if "sys_platform == 'linux'" in marker}
    assert of_linux == of_torch - {"torch"}


def tiny_wheel(folder: Path, name: str, version: str) -> str:
    """Write an empty package; return its sha256."""
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_make_refuses_a_file_whose_hash_is_not_in_the_lock(tmp_path: Path) -> None:
    wheels, nowhere = tmp_path / "wheels", "0" * 64
    wheels.mkdir()
    digest = tiny_wheel(wheels, "honest", "1.0")
    tiny_wheel(wheels, "torch", "9.0+cpu")  # in no index: the lock has the hash of another build
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    lock = tmp_path / "requirements.txt"
    env = {"PATH": os.environ["PATH"], "PIP_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1"}
    env["PIP_CONFIG_FILE"] = os.devnull
    command = ["make", f"PYTHON={sys.executable}", "install"]

    def output(hashed: str) -> str:
        pins = {"honest==1.0": hashed, "nvidia-cublas==1.0": nowhere, "torch==9.0": nowhere}
        lines = [f"{pin} \\\n    --hash=sha256:{value}\n" for pin, value in pins.items()]
        lock.write_text("# made by hand\n" + "".join(lines), encoding="utf-8")
        result = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert result.returncode != 0  # this folder itself is no package
        return result.stderr

    refusal = "THESE PACKAGES DO NOT MATCH THE HASHES"
    site = tmp_path / ".venv"
    assert refusal in output(nowhere)
    assert not list(site.rglob("honest.py"))
    assert refusal not in output(digest)
    assert list(site.rglob("honest.py"))
    assert list(site.rglob("torch.py"))
    assert not (site / "installed").exists()
