"""`pytest -m gpu` on a machine with few packages and no GPU: it collects and names the gap."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bare_gpu_machine import PRESENT, bare_environment
from tests.support.repository import ROOT

pytestmark = pytest.mark.slow


def _pytest(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments]
    ended = subprocess.run(
        command, cwd=ROOT, env=bare_environment(folder), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_training_tests_run_without_other_packages(tmp_path):
    said = _pytest(tmp_path, "tests/lce_core/training/test_training_on_devices.py", "-k", "cpu")
    assert re.search(r"^\d+ passed, \d+ deselected", said, re.MULTILINE), said


def test_the_guide_names_the_packages():
    guide = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"They need (.*?), +\n?but\s+no installation", guide, re.DOTALL)
    named = {word for word in re.findall(r"[a-z]+", sentence) if word != "and"}
    assert named == set(PRESENT)
