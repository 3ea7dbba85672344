"""Benchmarks, one file each: what is asked, how an answer is scored, what a cell costs."""

from __future__ import annotations

from lce_core.benchmarks._base import (
    Benchmark,
    CellRequest,
    CellResult,
    Profile,
    Sample,
    Score,
    score,
)
from lce_core.registry import Registry

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "CellRequest",
    "CellResult",
    "Profile",
    "Sample",
    "Score",
    "score",
]

BENCHMARKS: Registry[Benchmark] = Registry("lce_core.benchmarks", "BENCHMARK", Benchmark)
