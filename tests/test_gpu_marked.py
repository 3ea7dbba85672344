"""`pytest -m gpu` without the extra `dev` and without a GPU: it collects, and says what is missing.

Strategy: pytest in a fresh process, without plug-ins, and with modules of the extra that cannot be
imported.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT

EXTRA = (
    "hypothesis",
    "importlinter",
    "lm_eval",
    "playwright",
    "pytest_timeout",
    "xdist",
)

pytestmark = pytest.mark.slow


def test_tests_on_a_gpu_need_no_extra_but_pytest(tmp_path: Path) -> None:
    for name in EXTRA:
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} is not here')\n")
    environment = os.environ | {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "CUDA_VISIBLE_DEVICES": "",
    }
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-rs", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    skipped = re.search(r"^(\d+) skipped, (\d+) deselected", ended.stdout, re.MULTILINE)
    assert skipped, ended.stdout
    assert int(skipped[1]) > 80
    assert "torch sees no CUDA device" in ended.stdout
