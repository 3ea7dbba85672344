"""Timing, peak memory and random training rows for the speed scripts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from lce_core.data.manifest import write_manifest


class Timed(NamedTuple):
    """Wall and CPU seconds of a call, with its result."""

    wall: float
    cpu: float
    result: Any


def timed(call: Callable[[], Any]) -> Timed:
    """Time one call, including the work that it leaves on the GPU."""
    synchronise()
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    synchronise()
    return Timed(time.perf_counter() - wall, time.process_time() - cpu, result)


def alternate(
    first: Callable[[], Any], second: Callable[[], Any], repeats: int
) -> list[tuple[Timed, Timed]]:
    """Time two calls one right after the other, `repeats` times in alternating order."""
    pairs = []
    for repeat in range(repeats):
        if repeat % 2:
            later, earlier = timed(second), timed(first)
            pairs.append((earlier, later))
        else:
            pairs.append((timed(first), timed(second)))
    return pairs


def ratio(pairs: Sequence[tuple[Timed, Timed]]) -> tuple[float, float]:
    """Return the median of first time / second time, in wall and in CPU seconds."""
    wall = statistics.median(first.wall / second.wall for first, second in pairs)
    return wall, statistics.median(first.cpu / second.cpu for first, second in pairs)


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_memory(call: Callable[[], object], device: str = "cpu") -> float:
    """Return the peak MiB of torch's allocator during a call, without earlier allocations."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    # The profiler records every allocation; the resident size of the process is too coarse.
    with torch.profiler.profile(profile_memory=True) as profile:
        call()
    recorded: Any = profile.profiler
    blocks = [e for e in recorded.kineto_results.events() if e.name() == "[memory]"]
    held = np.cumsum([e.nbytes() for e in sorted(blocks, key=lambda e: e.start_ns())])
    return float(held.max()) / 2**20


def random_rows(folder: Path, number: int, length: int, vocabulary: int) -> None:
    """Write rows of random tokens in the format of `lce_core.data.packing`."""
    drawn = np.random.default_rng(0).integers(vocabulary, size=(number, length), dtype=np.uint16)
    (folder / "rows.bin").write_bytes(drawn.tobytes())
    manifest = {"num_rows": number, "row_length": length, "dtype": "uint16", "weighted": False}
    write_manifest(folder, manifest)
