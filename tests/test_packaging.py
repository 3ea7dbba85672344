"""The wheel holds what a run needs; `make` installs what the lock has; neither has more."""

import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.support.data.packaged_models import write_wheel
from tests.support.repository import ROOT

PACKAGES = ("lce_core", "catalog", "tasks", "flows", "dashboards", "lce")


@pytest.fixture
def wheel(tmp_path) -> zipfile.ZipFile:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    result = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    (built,) = tmp_path.glob("*.whl")
    return zipfile.ZipFile(built)


@pytest.mark.slow
def test_the_wheel_holds_the_packages_and_reads_a_shipped_study_outside_the_checkout(
    wheel, tmp_path
):
    ours = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    contents = {name.rpartition("/")[2]: name for name in wheel.namelist()}
    assert {name for name in wheel.namelist() if not name.startswith("lce-")} == ours
    entries = wheel.read(contents["entry_points.txt"]).decode()
    assert "[console_scripts]\nlce = lce.cli:main" in entries
    assert "[prefect.plugins]\nlce = flows.prefect_plugin" in entries
    assert b"Classifier: Private :: Do Not Upload" in wheel.read(contents["METADATA"])
    site = tmp_path / "site"
    wheel.extractall(site)
    code = (
        "import pathlib, sys; import flows; from lce_core.study.study_file import load_study;"
        "assert pathlib.Path(flows.__file__).is_relative_to(sys.argv[1]);"
        "folder = pathlib.Path(flows.__file__).parent / 'studies';"
        "print(*[load_study(path).study for path in sorted(folder.glob('*.yaml'))])"
    )
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


def test_every_package_of_the_lock_has_a_version_and_sha256_hashes():
    assert len(LOCKED) == len(re.findall(r"^[^\s#]", LOCK, re.MULTILINE)) > 200
    for name, _, _, hashes in LOCKED:
        found = re.findall(r"--hash=sha256:([0-9a-f]{64})(?: \\)?\n", hashes)
        assert len(found) == hashes.count("--hash") == len(set(found)), name


def test_other_builds_of_torch_go_without_the_libraries_that_only_linux_needs():
    (pattern,) = re.findall(r"^CUDA := (.*)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    of_torch = {name for name, *_ in LOCKED if re.fullmatch(pattern, name)}
    assert {"torch", "triton", "nvidia-cudnn-cu13"} <= of_torch
    of_linux = {name for name, _, marker, _ in LOCKED if "sys_platform == 'linux'" in marker}
    assert of_linux == of_torch - {"torch"}


@pytest.mark.slow
def test_make_refuses_a_file_whose_hash_is_not_in_the_lock(tmp_path):
    wheels, nowhere = tmp_path / "wheels", "0" * 64
    wheels.mkdir()
    module = tmp_path / "module.py"
    module.touch()
    digest = write_wheel(wheels, module, "honest.py", "honest")
    write_wheel(
        wheels, module, "torch.py", "torch", "9.0+cpu"
    )  # in no index: the lock has the hash of another build
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
