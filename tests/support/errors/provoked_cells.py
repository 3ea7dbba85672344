"""Cells that cannot be computed, for provocations of benchmarks."""

from collections.abc import Callable
from typing import Any

from lce_core.benchmarks import CellRequest
from tests.support.cells import benchmark, request
from tests.support.errors.provocations import Place


def evaluate(
    name: str, length: int, settings: dict[str, Any] | None = None, **changes: Any
) -> Callable[[Place], object]:
    def call(_: Place) -> object:
        asked = benchmark(name, **(settings or {}))
        return asked.evaluate(request(asked, length, **changes))

    return call


def bare(task: str = "code", **changes: Any) -> CellRequest:
    return request(benchmark("perplexity"), 256, task=task, **changes)
