"""Cells of the toy model over random held-out text, as tests of benchmarks ask for them."""

from dataclasses import replace
from typing import Any

from lce_core.benchmarks import BENCHMARKS, Benchmark, CellRequest
from lce_core.contracts.benchmark_cases import streams
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import MODELS

TOY = MODELS.parse({"name": "toy_llama"}, "test")


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
