"""Code shared by the section scripts of `perf/gpu.py`: options, models, rows, kernel names."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from lce_core.models import MODELS, LanguageModel
from lce_core.study.plugin_folders import add_plugin_folders

PLUGINS = Path(__file__).parent / "plugins"
SHAPES: dict[str, dict[str, int]] = {
    "Llama-2-7B": {},
    "tiny": {"layers": 2, "heads": 2, "head_dim": 16, "intermediate_size": 48, "trained": 128},
}
ATTENTION = ("flash", "fmha", "attention", "sdpa", "cudnn", "softmax")
"""A kernel whose name contains one of these computes attention."""


def options(described: str) -> argparse.Namespace:
    """Parse the options that `perf/gpu.py` passes to a section script."""
    parser = argparse.ArgumentParser(description=described)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="Llama-2-7B")
    parser.add_argument("--lengths", type=int, nargs="+", required=True)
    parser.add_argument("--methods", nargs="+", default=["none"])
    parser.add_argument("--seconds", type=float, default=120.0, help="last start of a measurement")
    parser.add_argument(
        "--rows", type=Path, required=True, help="JSON lines are added to this file"
    )
    found = parser.parse_args()
    found.deadline = time.monotonic() + found.seconds
    return found


def random_llama(shape: str, **sizes: int) -> LanguageModel:
    """Return a base model with random weights; `sizes` override sizes of `SHAPES[shape]`."""
    add_plugin_folders((PLUGINS,))
    return MODELS.parse({"name": "random_llama", **SHAPES[shape], **sizes}, "perf/gpu")


def add_row(rows: Path, row: Mapping[str, Any]) -> None:
    """Append a row to the file at once, because the process may be killed later."""
    with rows.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def speed_of(entries: Sequence[Mapping[str, Any]], warm_up: int) -> dict[str, Any]:
    """Return median speed and peak memory of a training log; skip the speed of `warm_up` steps."""
    counted = entries[warm_up:] or entries
    mfu = [entry["mfu"] for entry in counted if entry["mfu"] is not None]
    return {
        "tokens_per_second": statistics.median(e["tokens_per_second"] for e in counted),
        "mfu": statistics.median(mfu) if mfu else None,
        "peak_memory_gib": round(max(e["peak_memory_bytes"] for e in entries) / 2**30, 2),
    }


def attention_kernels(run: Callable[[], object]) -> list[str]:
    """Return the names of the three kernels (on a CPU: operations) with most time in attention.

    Template arguments are omitted.
    """
    cuda = torch.cuda.is_available()
    kind = torch.profiler.ProfilerActivity.CUDA if cuda else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[kind]) as profile:
        run()
    spent: dict[str, float] = {}
    for event in profile.key_averages():
        if any(part in event.key.lower() for part in ATTENTION):
            name = event.key.removeprefix("void ").partition("<")[0][:100]
            taken = event.self_device_time_total if cuda else event.self_cpu_time_total
            spent[name] = spent.get(name, 0.0) + taken
    return sorted(spent, key=lambda name: -spent[name])[:3]
