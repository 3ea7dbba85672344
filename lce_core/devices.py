"""Translate the settings `device` and `precision` into torch's terms; describe this machine."""

import contextlib
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Literal

import torch

from lce_core.errors import SpecError

DeviceName = Literal["auto", "cpu", "cuda"]

_PEAK_BF16 = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
"""Dense bf16 FLOP/s from NVIDIA's data sheets (SXM); each key is a part of torch's device name."""
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""macOS reports `ru_maxrss` in bytes, Linux in KiB."""


def count_accelerators() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def resolve_device(name: DeviceName) -> torch.device:
    """Return the device for "auto", "cpu" or "cuda"; "auto" prefers CUDA."""
    if name == "cuda" and not count_accelerators():
        raise SpecError(
            "execution.device",
            "cuda, but torch sees no CUDA device",
            "a device that torch can use on this machine",
            "use device cpu or auto, or install a CUDA build of torch",
        )
    return torch.device("cuda" if name != "cpu" and count_accelerators() else "cpu")


def resolve_dtype(precision: str) -> torch.dtype:
    return torch.bfloat16 if precision == "bf16" else torch.float32


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Return torch's autocast context for a precision.

    Under "bf16", matrix products run in bf16 from fp32 weights; under "fp32", autocast is disabled.
    The autocast cache is off, because it would keep bf16 copies of all weights in memory until the
    context exits.
    """
    enabled = precision == "bf16"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)


def memory_bytes(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    return int(torch.cuda.get_device_properties(device).total_memory)


def peak_memory(device: torch.device) -> int:
    """Return this process's peak memory in bytes.

    On CUDA, the maximum since the previous call; on a CPU, the largest resident set so far.
    """
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES


def peak_flops(device: torch.device, precision: str) -> float | None:
    """Return the peak dense bf16 FLOP/s of one GPU; None if `_PEAK_BF16` lacks it or for fp32."""
    if device.type != "cuda" or precision != "bf16":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in _PEAK_BF16.items() if part in name), None)


@contextlib.contextmanager
def reproducible(device: torch.device, threads: int) -> Iterator[None]:
    """Set torch's thread count and, on a CPU, deterministic kernels; restore both on exit.

    Results depend on the thread count, because each thread rounds its own partial sum.
    """
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(threads)
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])
