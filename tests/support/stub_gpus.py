"""GPUs for machines without one: torch.cuda answers like a machine with H100s and notes calls."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

NAME = "NVIDIA H100 80GB HBM3"
MEMORY = 85_000_000_000
"""Bytes that an H100 with 80 GB reports."""


def stub_gpus(monkeypatch: pytest.MonkeyPatch, count: int = 2) -> list[tuple[Any, ...]]:
    """Replace functions of torch.cuda; return the list of calls, each with its arguments."""
    calls: list[tuple[Any, ...]] = []

    def replace(name: str, result: Any = None) -> None:
        def called(*given: Any, **named: Any) -> Any:
            calls.append((name, *given, *named.values()))
            return result

        monkeypatch.setattr(torch.cuda, name, called)

    properties = SimpleNamespace(name=NAME, total_memory=MEMORY, major=9, minor=0)
    answers = {
        "is_available": True,
        "device_count": count,
        "get_device_name": NAME,
        "get_device_capability": (9, 0),
        "get_device_properties": properties,
        "max_memory_allocated": 3 * 2**30,
        "graph_pool_handle": "pool",
    }
    for name, result in answers.items():
        replace(name, result)
    for name in ("empty_cache", "reset_peak_memory_stats", "manual_seed"):
        replace(name)
    return calls
