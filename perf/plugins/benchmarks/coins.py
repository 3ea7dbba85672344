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
    calls,
    score,
)
from lce_core.statistics.estimates import wilson

VERSION = 1
SOURCE = Source(paper="own", place="docs/performance.md", reference="own")


def drawn(task: str, eval_length: int, seed: int, number: int) -> list[int]:
    """Return `number` tosses (1: heads, 0: tails), the same for the same cell."""
    cell = zlib.crc32(f"{task} {eval_length} {seed}".encode())
    heads: list[int] = np.random.default_rng(cell).integers(0, 2, number).tolist()
    return heads


EVIDENCE = (
    calls(
        drawn,
        [0, 0, 1, 0, 0, 0, 1, 1],
        "output of numpy's generator, called once by hand",
        task="task-0",
        eval_length=64,
        seed=0,
        number=8,
    ),
)


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
        heads = drawn(request.task, request.eval_length, request.seed, self.num_samples)
        samples = tuple(
            Sample(index, 1, float(head), None, "heads" if head else "tails", "heads")
            for index, head in enumerate(heads)
        )
        estimate = wilson(sum(heads), self.num_samples)
        found = score(self.default_metric, estimate, higher_is_better=True)
        return CellResult((found,), samples, sequences=Sequences.of([1] * self.num_samples))


BENCHMARK = Coins
