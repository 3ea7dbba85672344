"""Code that only a GPU reaches, on stand-ins for torch.cuda, and the list of all such files."""

from __future__ import annotations

import re
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lce_core import devices, offline, runners
from lce_core.attention.token_graphs import CudaRecorder
from lce_core.devices import (
    count_accelerators,
    memory_bytes,
    peak_flops,
    peak_memory,
    resolve_device,
)
from lce_core.errors import SpecError
from lce_core.evaluation import long_cell
from lce_core.execution import Execution
from lce_core.store import records
from lce_core.training import recomputation, run
from lce_core.training.trainer import Trainer
from tests.support.repository import ROOT
from tests.support.stub_gpus import MEMORY, NAME, stub_gpus
from tests.support.training_jobs import job_maker

CUDA = torch.device("cuda", 0)
GPU_FILES = {
    # Fp32 keys are repeated for the heads that share them.
    "lce_core/attention/causal.py": ("tests/lce_core/attention/test_stock.py",),
    # The flash kernel of half precision.
    "lce_core/attention/flash.py": ("tests/perf/test_launches.py",),
    # Capture and replay of CUDA graphs.
    "lce_core/attention/token_graphs.py": ("tests/lce_core/test_cuda_branches.py",),
    # Name, number, memory, peak rate and peak memory of the device.
    "lce_core/devices.py": ("tests/lce_core/test_cuda_branches.py",),
    # Parts of a cell are merged per type of GPU.
    "lce_core/evaluation/long_cell.py": ("tests/lce_core/test_cuda_branches.py",),
    # Choice of the attention kernel.
    "lce_core/extension/kernels.py": ("tests/lce_core/extension/test_extension.py",),
    # Token graphs; cached memory is freed between models.
    "lce_core/runners.py": ("tests/lce_core/test_cuda_branches.py",),
    # Names of the GPUs in a record.
    "lce_core/store/records.py": ("tests/lce_core/test_cuda_branches.py",),
    # Several processes shard.
    "lce_core/training/job.py": ("tests/lce_core/training/test_sharding.py",),
    # Offloaded inputs wait in pinned memory.
    "lce_core/training/recomputation.py": ("tests/lce_core/test_cuda_branches.py",),
    # One process per GPU at most; memory is freed before a fallback.
    "lce_core/training/run.py": ("tests/lce_core/test_cuda_branches.py",),
    # Compiled layers; seed of dropout.
    "lce_core/training/trainer.py": (
        "tests/lce_core/training/test_compiled_layers.py",
        "tests/lce_core/test_cuda_branches.py",
    ),
    # The output of nvidia-smi names the GPUs to lease.
    "tasks/machines.py": ("tests/tasks/test_workers.py",),
    # `device: cuda` without a GPU is refused.
    "tasks/workers.py": ("tests/errors/of_tasks.py",),
}
"""Files with code that only a GPU reaches, what a GPU changes there, and the tests without one."""
GPU_CODE = re.compile(r'torch\.cuda\.|== "cuda"|"nvidia-smi"')


@pytest.fixture
def calls(monkeypatch) -> list[tuple[Any, ...]]:
    return stub_gpus(monkeypatch)


def test_the_device_and_its_facts_are_those_that_torch_reports(calls):
    assert count_accelerators() == 2
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda")
    assert resolve_device("cpu") == torch.device("cpu")
    assert memory_bytes(CUDA) == MEMORY
    assert peak_flops(CUDA, "bf16") == 989e12
    assert peak_flops(CUDA, "fp32") is None
    assert records._accelerators() == [NAME, NAME]
    assert ("get_device_name", 1) in calls


def test_peak_memory_starts_again_after_each_entry(calls):
    assert peak_memory(CUDA) == 3 * 2**30
    assert calls == [("max_memory_allocated", CUDA), ("reset_peak_memory_stats", CUDA)]


def test_losses_of_ranges_are_merged_only_on_one_kind_of_gpu(calls):
    model: Any = SimpleNamespace(
        model=SimpleNamespace(device=CUDA, dtype=torch.bfloat16), kernel="sdpa"
    )
    assert long_cell.arithmetic(model) == (
        f"{NAME}, torch {torch.__version__}, torch.bfloat16, sdpa"
    )


def test_offloaded_inputs_are_copied_to_pinned_memory(monkeypatch):
    asked = []
    monkeypatch.setattr(
        torch.autograd.graph, "save_on_cpu", lambda pin_memory: asked.append(pin_memory)
    )
    for device in (CUDA, torch.device("cpu")):
        recomputation.storage("offload", device)
        recomputation.storage("full", device)
    assert asked == [True, False]


def test_a_run_out_of_memory_frees_it_and_goes_on_with_the_next_fallback(
    calls, monkeypatch, tmp_path
):
    make_job, tried = job_maker(tmp_path / "rows", tmp_path), []

    def carry_out(job: Any, device: torch.device, report: Any) -> dict[str, Any]:
        tried.append((job.kept, device.type))
        if len(tried) < 3:
            raise torch.OutOfMemoryError("CUDA out of memory\nin detail")
        return {"kept": job.kept}

    monkeypatch.setattr(run, "_carry_out", carry_out)
    job = make_job(device="auto", micro_batch_tokens=64)
    found = run.run(job, lambda row: None)
    assert [device for _, device in tried] == 3 * ["cuda"]
    assert [kept for kept, _ in tried][:2] == ["none", "attention"]
    assert [text.rpartition(": ")[2] for text in found["out_of_memory"]] == 2 * [
        "CUDA out of memory"
    ]
    assert calls.count(("empty_cache",)) == 2
    with pytest.raises(SpecError, match="3, but torch sees 2 GPUs"):
        run.run(make_job(device="cuda", processes=3), lambda row: None)


def test_dropout_of_a_gpu_has_a_seed_for_each_step_and_process(calls, tmp_path):
    trainer: Any = object.__new__(Trainer)
    trainer.job = job_maker(tmp_path / "rows", tmp_path)()
    trainer.training, trainer.device = trainer.job.training, CUDA
    trainer.optimizer = SimpleNamespace(param_groups=[{}])
    for process, step in ((0, 0), (0, 0), (0, 1), (1, 0)):
        trainer.accelerator = SimpleNamespace(process_index=process)
        trainer._prepare(step)
    first, again, *others = [call for call in calls if call[0] == "manual_seed"]
    assert first == again
    assert len({first, *others}) == 3


def test_graphs_are_captured_on_a_stream_of_their_own_between_waits_for_the_other(
    calls, monkeypatch
):
    class Stream:
        def __init__(self, name: object) -> None:
            self.name = "own" if name == CUDA else name

        def wait_stream(self, other: Stream) -> None:
            calls.append((self.name, "waits for", other.name))

    class Graph:
        def capture_begin(self, **given: object) -> None:
            calls.append(("begin", given))

        def capture_end(self) -> None:
            calls.append(("end",))

        def replay(self) -> None:
            calls.append(("replay",))

    @contextmanager
    def stream(on: Stream) -> Any:
        calls.append(("enter", on.name))
        yield
        calls.append(("leave", on.name))

    for name, stand_in in {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "stream": stream,
        "current_stream": lambda _: Stream("default"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    recorder = CudaRecorder(CUDA)
    with recorder.aside():
        recorder.begin()
        replay = recorder.end()
    replay()
    assert calls == [
        ("graph_pool_handle",),
        ("own", "waits for", "default"),
        ("enter", "own"),
        ("begin", {"pool": "pool", "capture_error_mode": "thread_local"}),
        ("end",),
        ("leave", "own"),
        ("default", "waits for", "own"),
        ("replay",),
    ]


@pytest.mark.parametrize(
    ("wanted", "experts", "precision", "capability", "expected"),
    [
        (True, None, "fp32", (8, 0), True),
        (False, None, "fp32", (8, 0), False),
        (True, "some", "bf16", (9, 0), True),
        (True, "some", "bf16", (8, 0), False),
        (True, "some", "fp32", (9, 0), False),
    ],
)
def test_models_replay_tokens_on_a_gpu_that_can_if_the_execution_says_so(
    calls, monkeypatch, tmp_path, *, wanted, experts, precision, capability, expected
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    done: list[Any] = []
    weights = SimpleNamespace(to=lambda device: weights, eval=lambda: weights)
    extended = SimpleNamespace(replay_tokens=done.append)
    monkeypatch.setattr(runners, "extend", lambda *_, **__: extended)
    monkeypatch.setattr(runners, "CudaRecorder", lambda device: ("recorder", device.type))
    runner: Any = object.__new__(runners.Runner)
    runner._execution = Execution(home=tmp_path, token_graphs=wanted)
    runner._loaded = None
    runner._weights = lambda *_: None
    spec: Any = SimpleNamespace(
        base_model=SimpleNamespace(load=lambda *_: weights, shape=SimpleNamespace(experts=experts)),
        evaluation=SimpleNamespace(precision=precision, kernel="auto", rotation=None),
        published=None,
        weights=None,
        method=None,
        target_context=64,
    )
    assert runner._model(spec, SimpleNamespace(parents={})) is extended
    assert done == ([("recorder", "cuda")] if expected else [])
    assert ("empty_cache",) in calls


def test_every_file_with_code_for_gpus_alone_is_listed_with_its_tests():
    found = {
        str(path.relative_to(ROOT))
        for folder in ("lce_core", "tasks")
        for path in (ROOT / folder).rglob("*.py")
        if GPU_CODE.search(path.read_text(encoding="utf-8"))
    }
    assert found == GPU_FILES.keys()
    for proofs in GPU_FILES.values():
        assert all((ROOT / name).is_file() for name in proofs)


def test_a_packed_study_uses_the_gpus_that_a_batch_system_gave(monkeypatch):
    monkeypatch.setattr(devices, "count_accelerators", lambda: 2)
    for visible, expected in (("", ["0", "1"]), ("3,GPU-5", ["3", "GPU-5"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert offline._gpus("cuda") == expected
    assert offline._gpus("cpu") == [""]
