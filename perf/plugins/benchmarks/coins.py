"""A benchmark that tosses coins instead of running a model: a cell costs its bookkeeping only.

Source: own, for perf/scale.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from lce_core.benchmarks import (
    Benchmark,
    CellRequest,
    CellResult,
    Form,
    Profile,
    Sample,
    Sequences,
    Source,
    calls,
    score,
)
from lce_core.statistics.estimates import wilson

VERSION = 1
SOURCE = Source(paper="own", place="docs/performance.md", reference="own")


def drawn(task: str, eval_length: int, seed: int, number: int) -> list[int]:
    """1 for heads and 0 for tails, always the same for the same cell."""
    cell = zlib.crc32(f"{task} {eval_length} {seed}".encode())
    heads: list[int] = np.random.default_rng(cell).integers(0, 2, number).tolist()
    return heads


EVIDENCE = (
    calls(
        drawn,
        [0, 0, 1, 0, 0, 0, 1, 1],
        "numpy's generator asked by hand, once",
        task="task-0",
        eval_length=64,
        seed=0,
        number=8,
    ),
)


class Coins(Benchmark):
    """Share of heads."""

    unit: ClassVar[str] = "accuracy"
    seeded: ClassVar[bool] = True
    default_metric: ClassVar[str] = "heads"
    forms: ClassVar[Mapping[Profile, Form]] = {"tiny": Form("coins, and nothing else")}
    num_tasks: int = Field(default=100, gt=0)
    num_samples: int = Field(default=100, gt=0)

    def tasks(self) -> tuple[str, ...]:
        return tuple(f"task-{number}" for number in range(self.num_tasks))

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """One a throw, since a price of nothing cannot be told."""
        return self.num_samples

    def evaluate(self, request: CellRequest) -> CellResult:
        """Toss one coin per sample."""
        heads = drawn(request.task, request.eval_length, request.seed, self.num_samples)
        samples = tuple(
            Sample(index, 1, float(head), None, "heads" if head else "tails", "heads")
            for index, head in enumerate(heads)
        )
        estimate = wilson(sum(heads), self.num_samples)
        found = score(self.default_metric, estimate, higher_is_better=True)
        return CellResult((found,), samples, sequences=Sequences.of([1] * self.num_samples))


BENCHMARK = Coins
