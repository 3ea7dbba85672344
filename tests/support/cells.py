"""Cells of the toy model over random held-out text, as tests of benchmarks ask for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lce_core.benchmarks import BENCHMARKS, Benchmark, CellRequest
from lce_core.extension.extended_model import extend
from lce_core.methods import METHODS
from lce_core.models import MODELS

TOY = MODELS.parse({"name": "toy_llama"}, "test")


@dataclass(frozen=True)
class Streams:
    """Held-out text as a benchmark sees it: named arrays of token ids."""

    tokens: dict[str, NDArray[np.uint32]]

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(self.tokens)

    def stream(self, domain: str) -> NDArray[np.uint32]:
        return self.tokens[domain]

    def document_starts(self, domain: str) -> NDArray[np.int64]:
        return np.arange(0, len(self.tokens[domain]), 1500)


def streams(size: int = 20_000) -> Streams:
    rng = np.random.default_rng(11)
    code, prose = (rng.integers(256, size=size).astype(np.uint32) for _ in range(2))
    return Streams({"code": code, "prose": prose})


def benchmark(name: str, **parameters: Any) -> Benchmark:
    return BENCHMARKS.parse({"name": name, **parameters}, "test")


def request(asked: Benchmark, length: int, method: str = "none", **changes: Any) -> CellRequest:
    model = TOY.initialise(2).eval()
    return replace(
        CellRequest(
            model=extend(model, TOY, METHODS.parse({"name": method}, "test"), target=512),
            tokenizer=TOY.tokenizer(None),
            base_model=TOY,
            held_out=streams(),  # type: ignore[arg-type]
            task=asked.tasks()[0],
            eval_length=length,
            seed=0,
        ),
        **changes,
    )


def values(result: Any) -> dict[str, float]:
    return {score.metric: score.value for score in result.scores}
