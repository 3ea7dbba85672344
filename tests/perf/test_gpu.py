"""The command that measures a GPU, where there is none: it runs on a tiny shape, never pretending.

Strategy: the command as users type it, in a process of its own; and its sections with commands that
fail, hang, or leave children behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lce_core.training.loss_log import LOG
from tests.support.repository import ROOT

pytestmark = pytest.mark.slow


def measure(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "perf" / "gpu.py"), *options],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module; it finds its neighbours as it does when it is run."""
    monkeypatch.syspath_prepend(str(ROOT / "perf"))
    import gpu

    return gpu


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_dry_run_measures_a_tiny_shape_and_says_that_it_is_none(tmp_path: Path) -> None:
    # The tests marked `gpu` have a test of their own, tests/test_gpu_marked.py.
    ended = measure(
        "--dry-run",
        "--seconds",
        "850",
        "--out",
        str(tmp_path),
        "--sections",
        "training",
        "inference",
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (written,) = tmp_path.glob("*.json")
    found = json.loads(written.read_text(encoding="utf-8"))
    training, inference = found["sections"]
    assert (training["how"], inference["how"]) == ("done", "done")
    assert [row["length"] for row in training["rows"]] == [64, 128]
    for row in training["rows"]:
        assert row["tokens_per_second"] > 0
        assert row["peak_memory_gib"] > 0
        assert row["steps"] == 6
        assert row["kernel"] == "sdpa"
        assert any("flash_attention" in name for name in row["kernels"])
        assert row["loss"][0] == pytest.approx(10.4, abs=0.3)  # ln 32000: random weights
    measured = [row for row in inference["rows"] if row["what"] == "inference"]
    replayed = [row for row in inference["rows"] if row["what"] == "replayed"]
    for rows in (measured, replayed):
        assert [row["method"] for row in rows] == ["none", "self_extend", "landmark"]
    for row in replayed:
        assert row["plain"] > 0
        assert row["graphs"] is None  # without CUDA
    for row in measured:
        assert "refused" not in row
        assert row["prefill_tokens_per_second"] > 0
        assert row["kernel"]
        assert row["kernels"]
    (table,) = tmp_path.glob("*.md")
    text = table.read_text(encoding="utf-8")
    assert "these figures are not those of a GPU" in text
    assert "| landmark | 256 |" in text
    assert found["facts"]["torch"] in text


def test_without_a_gpu_nothing_is_measured_and_the_reason_is_said(tmp_path: Path) -> None:
    ended = measure("--out", str(tmp_path / "results"))
    assert ended.returncode == 3
    assert "No GPU found" in ended.stderr
    assert not (tmp_path / "results").exists()


def _runs(process: int) -> bool:
    try:
        return psutil.Process(process).status() != "zombie"
    except psutil.NoSuchProcess:
        return False


def test_a_section_that_fails_or_hangs_keeps_its_rows_and_costs_no_other(
    gpu: Any, tmp_path: Path
) -> None:
    broken = (
        "import sys; open(sys.argv[1], 'w').write('{\"what\": \"x\"}\\n{\"wh'); sys.exit('boom')"
    )
    failed = gpu.run(
        gpu.Section("broken", [sys.executable, "-c", broken, "{rows}"], 0, 60),
        60,
        tmp_path / "rows",
    )
    assert (failed.how, failed.rows) == ("failed", [{"what": "x"}])
    assert "boom" in failed.said
    hangs = (
        "import subprocess, sys, time; child = subprocess.Popen(['sleep', '600']);"
        " print(child.pid, flush=True); time.sleep(600)"
    )
    begun = time.monotonic()
    late = gpu.run(
        gpu.Section("hangs", [sys.executable, "-c", hangs], 0, 600), 3, tmp_path / "none"
    )
    assert late.how == "out of time"
    assert time.monotonic() - begun < 60
    child = int(late.said)
    until = time.monotonic() + 30  # a kill takes effect when the process would run next
    while _runs(child):
        assert time.monotonic() < until
        time.sleep(0.05)
    facts = {"gpu": "NVIDIA H200", "commit": "0123456789"}
    sections = [vars(failed), vars(late), vars(gpu.Ended("later", "no time left"))]
    found = {"command": "x", "dry_run": False, "at": "now", "seconds": 1.0, "facts": facts}
    path = gpu.write(tmp_path, {**found, "sections": sections})
    assert path.name == "nvidia-h200-0123456"
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    for line in ("| broken | failed |", "| hangs | out of time |", "| later | no time left |"):
        assert line in text
    assert "boom" in text


def test_counts_of_tests_are_read_from_what_pytest_says(gpu: Any, tmp_path: Path) -> None:
    said = "....\n2 failed, 90 passed, 3 skipped, 700 deselected in 61.00s (0:01:01)\n"
    rows = list(gpu._rows(tmp_path / "none", said, "tests"))
    assert rows == [{"what": "tests", "failed": 2, "passed": 90, "skipped": 3}]


def test_what_a_study_had_finished_is_read_from_its_store(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gpu_study

    entry = {"step": 1, "tokens_per_second": 100.0, "mfu": 0.5, "peak_memory_bytes": 2**30}
    for folder in ("artifacts/finetune/pi-0123", "progress/4567"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / LOG).write_text(3 * (json.dumps(entry) + "\n"), encoding="utf-8")
    for name in ("one", "two", ".attempt-three"):
        (tmp_path / "artifacts/cell" / name).mkdir(parents=True)
        (tmp_path / "artifacts/cell" / name / "record.json").touch()
    *trained, cells = gpu_study.found(tmp_path)
    assert [(row["step"], row["steps"], row["mfu"]) for row in trained] == [
        ("pi-0123", 3, 0.5),
        ("4567", 3, 0.5),
    ]
    assert cells == {"what": "study", "cells": 2}
