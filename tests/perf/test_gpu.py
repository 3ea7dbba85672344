"""The command that measures a GPU, where there is none: it runs on a tiny shape."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from lce_core.training.memory import USABLE_FRACTION, need
from tests.support.bare_gpu_machine import bare_environment
from tests.support.compiling import needs_compiler
from tests.support.process_trees import left
from tests.support.repository import ROOT
from tests.support.stub_gpus import MEMORY
from tests.support.studies import wait_until

pytestmark = pytest.mark.slow


def measure(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    return subprocess.run(
        [sys.executable, str(ROOT / "perf" / "gpu.py"), *options],
        cwd=ROOT,
        env=bare_environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def gpu() -> Any:
    import gpu

    return gpu


@needs_compiler
@pytest.mark.timeout(3600)  # for a machine ten times slower
def test_a_dry_run_runs_every_section_with_the_packages_of_a_bare_gpu_machine(gpu, tmp_path):
    options = ("--dry-run", "--seconds", "36000", "--commit", "0123456789", "--out")
    ended = measure(tmp_path / "hiding", *options, str(tmp_path / "out"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "out" / "cpu-0123456.json").read_text(encoding="utf-8"))
    assert [(section["name"], section["how"]) for section in found["sections"]] == [
        (section.name, "done") for section in gpu.sections(gpu.parsed([]))
    ]
    rows = [row for section in found["sections"] for row in section["rows"]]
    skipped = [row.get("kernel") for row in rows if "skipped" in row]
    assert skipped == ["SDPA, cuDNN", "flash-attn package", "torch varlen_attn"]
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if "skipped" not in row:
            kinds.setdefault(row["what"], []).append(row)
    assert kinds["tests"][0]["counts"]["skipped"] > 80
    assert [row["method"] for row in kinds["token-graphs"]] == ["none", "harpe", "self_extend"]
    assert all(row["milliseconds_with_graphs"] > 0 for row in kinds["token-graphs"])
    for row in kinds["training"]:
        assert row["tokens_per_second"] > 0
        assert row["peak_memory_gib"] > 0
        assert row["kernel"] == "torch_flash_cpu"
        assert row["states"] == "bf16"
        assert row["loss"][0] == pytest.approx(10.4, abs=0.3)  # ln 32000: random weights
    assert [(row["rows"], row["compiled"]) for row in kinds["training"]] == [
        *((4, True), (1, True)),
        *((1, False), (1, True)),
    ]
    assert [row["part"] for row in kinds["update"]] == ["optimizer", "gradient sums"]
    assert {row["method"]: row["kernel"] for row in kinds["speed"]}["landmark"] == "matmul"
    assert all(row["prefill_tokens_per_second"] > 0 for row in kinds["speed"])
    text = (tmp_path / "out" / "cpu-0123456.md").read_text(encoding="utf-8")
    assert "these figures are not those of a GPU" in text
    assert "| landmark | 256 |" in text


def test_without_a_gpu_nothing_is_measured_and_the_reason_is_said(tmp_path):
    ended = measure(tmp_path / "hiding", "--out", str(tmp_path / "results"))
    assert ended.returncode == 3
    assert "No GPU found" in ended.stderr
    assert not (tmp_path / "results").exists()


def test_64k_tokens_of_7b_train_with_the_first_fallback_that_an_h100_can_hold(monkeypatch):
    import gpu_training

    tried = []

    def trained(job: Any, base: Any, *_: Any) -> dict[str, Any]:
        assert need(job, base, torch.device("cuda")).total < USABLE_FRACTION * MEMORY
        tried.append((base.shape.num_layers, job.row_length, job.state_precision))
        if len(tried) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory\nin detail")
        return {"steps": 2}

    monkeypatch.setattr(gpu_training, "trained", trained)
    monkeypatch.setattr(gpu_training, "memory_bytes", lambda _: MEMORY)
    options = argparse.Namespace(
        shape="Llama-2-7B", method="none", rows_per_step=1, deadline=float("inf")
    )
    # The first attempt is out of memory. At 32k, other fallbacks are left then.
    found = gpu_training.steps(options, 32768)
    assert found["steps"] == 2
    assert [*map(first_part, found["out_of_memory"])] == ["1 row a pass"]
    assert gpu_training.steps(options, 65536) == {"steps": 2, "out_of_memory": []}
    assert tried == [*2 * [(32, 32768, "bf16")], (32, 65536, "bf16")]
    options.deadline = 0.0
    with pytest.raises(gpu_training.SkippedError, match="no time left"):
        gpu_training.steps(options, 32768)


def first_part(text: str) -> str:
    assert text.endswith(": CUDA out of memory")
    return text.partition(",")[0]


def test_a_measurement_that_fails_hides_no_other_and_fails_the_section(
    tmp_path, capsys, monkeypatch
):
    from gpu_common import SkippedError, section

    def measurements(options: argparse.Namespace) -> Iterator[Any]:
        yield {"number": 1}, Mock(side_effect=SkippedError("no such kernel"))
        yield {"number": 2}, Mock(side_effect=torch.OutOfMemoryError("too large\nin detail"))
        yield {"number": 3}, Mock(side_effect=RuntimeError("defect"))
        yield {"number": 4}, lambda: {"figure": 5}
        options.deadline = 0.0
        yield {"number": 5}, lambda: {"figure": 6}

    rows = tmp_path / "rows"
    monkeypatch.setattr(sys, "argv", ["section", "--rows", str(rows)])
    assert section("", measurements) == 1
    assert "RuntimeError: defect" in capsys.readouterr().err
    model = {"model": "Llama-2-7B"}
    assert [json.loads(line) for line in rows.read_text().splitlines()] == [
        {**model, "number": 1, "skipped": "no such kernel"},
        {**model, "number": 2, "skipped": "too large"},
        {**model, "number": 3, "failed": "RuntimeError: defect"},
        {**model, "number": 4, "figure": 5},
        {**model, "number": 5, "skipped": "no time left"},
    ]


def test_each_attention_kernel_is_called_as_torch_and_flash_attn_define_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # torch knows its own kernels for tensors without values; a stand-in has flash-attn's arguments.
    from types import SimpleNamespace

    import gpu_layer

    def flash_attn_func(
        q: Any, k: Any, v: Any, dropout_p: float = 0.0, causal: bool = False
    ) -> Any:
        assert causal
        assert not dropout_p
        assert q.shape == k.shape == v.shape == (1, 32, 4, 8)
        return q + k + v

    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_func=flash_attn_func))
    for name, attend in gpu_layer.KERNELS.items():
        states = torch.empty(4, 32, 4, 8, dtype=torch.bfloat16, device="meta")
        inputs = [part.requires_grad_() for part in states[:3].unbind()]
        output = attend(*inputs)
        gradients = torch.autograd.grad(output, inputs, states[3])
        assert {output.shape, *(one.shape for one in gradients)} == {(32, 4, 8)}, name


LIMIT = 600.0
"""Seconds of a section that hangs; nothing waits for so long."""


@pytest.fixture
def timeout(gpu, monkeypatch, tmp_path) -> Path:
    """A file with which a section says that its time is over, whatever the clock says."""
    said = tmp_path / "hangs"

    class Process(subprocess.Popen[str]):
        def wait(self, timeout: float | None = None) -> int:
            if timeout != LIMIT:
                return super().wait(timeout)
            wait_until(said.exists)
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(gpu.subprocess, "Popen", Process)
    monkeypatch.setattr(gpu, "_STOP_SECONDS", 300)  # for pytest on a slow machine
    return said


def test_a_section_that_fails_or_hangs_keeps_its_rows_and_costs_no_other(gpu, tmp_path, timeout):
    def run(name: str, code: str, limit: float, *arguments: str) -> Any:
        section = gpu.Section(name, [sys.executable, "-c", code, *arguments], limit)
        return gpu.run(section, limit, tmp_path / "rows")

    broken = (
        "import sys; open(sys.argv[1], 'w').write('{\"what\": \"x\"}\\n{\"wh'); sys.exit('boom')"
    )
    failed = run("broken", broken, LIMIT - 1, "{rows}")
    assert (failed.how, failed.rows) == ("failed", [{"what": "x"}])
    assert "boom" in failed.said
    hangs = (
        "import pathlib, subprocess, sys, time; child = subprocess.Popen(['sleep', '600']);"
        " print(child.pid, flush=True); pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
    )
    late = run("hangs", hangs, LIMIT, str(timeout))
    assert late.how == "out of time"
    assert left([int(late.said.split()[0])]) == []
    facts = {"gpu": "NVIDIA H200", "commit": "0123456789"}
    sections = [vars(failed), vars(late), vars(run("later", "", 0.5))]
    found = {"command": "x", "dry_run": False, "at": "now", "seconds": 1.0, "facts": facts}
    path = gpu.write(tmp_path, {**found, "sections": sections})
    assert path.name == "nvidia-h200-0123456"
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    rows = ("| broken | failed |", "| hangs | out of time |", "| later | skipped |")
    assert [row for row in rows if row not in text] == []
    assert "boom" in text
