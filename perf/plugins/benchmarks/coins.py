"""A benchmark that tosses coins instead of running a model, so that a cell costs only overhead.

Source: own, for perf/scale.py.
"""

import zlib
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from lce_core.benchmarks import (
    Benchmark,
    CellRequest,
    CellResult,
    Profile,
    ProfileName,
    Sample,
    Sequences,
    Source,
    score,
)
from lce_core.statistics.estimates import wilson

VERSION = 1
SOURCE = Source(paper="own", place="docs/performance.md", reference="own")
EVIDENCE = ()
"""Coins have no published value."""


class Coins(Benchmark):
    """Fraction of heads."""

    unit: ClassVar[str] = "accuracy"
    seeded: ClassVar[bool] = True
    default_metric: ClassVar[str] = "heads"
    profiles: ClassVar[Mapping[ProfileName, Profile]] = {"tiny": Profile("tosses coins")}
    num_tasks: int = Field(default=100, gt=0)
    num_samples: int = Field(default=100, gt=0)

    def tasks(self) -> tuple[str, ...]:
        return tuple(f"task-{number}" for number in range(self.num_tasks))

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        return self.num_samples  # one per toss, because a predicted cost must be above 0

    def evaluate(self, request: CellRequest) -> CellResult:
        cell = zlib.crc32(f"{request.task} {request.eval_length} {request.seed}".encode())
        heads = np.random.default_rng(cell).integers(0, 2, self.num_samples).tolist()
        samples = tuple(
            Sample(index, 1, float(head), None, "heads" if head else "tails", "heads")
            for index, head in enumerate(heads)
        )
        estimate = wilson(sum(heads), self.num_samples)
        found = score(self.default_metric, estimate, higher_is_better=True)
        return CellResult((found,), samples, sequences=Sequences.of([1] * self.num_samples))


BENCHMARK = Coins
