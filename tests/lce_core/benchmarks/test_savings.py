"""What saves work changes no score: every benchmark, asked with all savings off and on.

Toy models in float64, so that other chunks and batches cannot tip a choice; a text answer that was
stopped early must be the beginning of the whole one.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from lce_core.benchmarks import BENCHMARKS, CellResult, PromptBenchmark
from tests.support.cells import benchmark, request
from tests.support.line_answers import line_tokenizer, make_words_likely
from tests.support.ruler_prompts import stand_in_data

pytestmark = pytest.mark.slow

READS_DATA = ("short_context",)
TINY = [
    name
    for name in BENCHMARKS.names()
    if "tiny" in BENCHMARKS.load(name).forms and name not in READS_DATA
]
TEXT: dict[str, tuple[dict[str, Any], str, int]] = {
    "needle": ({"profile": "fast", "haystack": "held_out", "trials": 1}, "single", 700),
    "passkey": ({"profile": "fast", "num_samples": 4}, "single", 700),
    "long_eval": ({"profile": "fast", "num_samples": 4}, "lines", 700),
    "ruler": ({"profile": "fast", "num_samples": 3}, "niah_single_1", 700),
    "many_shot": (
        {"profile": "fast", "shots": [5], "permutations": 1, "num_questions": 4},
        "shots_5",
        1000,
    ),
}
"""Parameters, task and length of the text forms that need no text of others, or little of it."""


def results(name: str, parameters: dict[str, Any], length: int, **changes: Any) -> list[CellResult]:
    asked = benchmark(name, **parameters)
    found = []
    for savings in (False, True):
        cell = request(asked, length, savings=savings, **changes)
        cell.model.model.double()
        make_words_likely(cell.model)
        found.append(asked.evaluate(cell))
    return found


def same_scores(without: CellResult, savings: CellResult) -> None:
    assert len(without.samples) == len(savings.samples) > 0
    for whole, short in zip(without.samples, savings.samples, strict=True):
        assert short.score == pytest.approx(whole.score, rel=1e-6)
        assert (whole.prediction or "").startswith(short.prediction or "")
    for before, after in zip(without.scores, savings.scores, strict=True):
        assert before.metric == after.metric
        assert math.isclose(before.value, after.value, rel_tol=1e-6)


@pytest.mark.parametrize("method", ["none", "dynamic_yarn"])
@pytest.mark.parametrize("name", TINY)
def test_savings_change_no_score_of_a_tiny_cell(name: str, method: str) -> None:
    same_scores(*results(name, {"profile": "tiny"}, 200, method=method))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.data) if name == "many_shot" else name for name in TEXT],
)
def test_savings_change_no_score_of_a_text_cell(name: str, tmp_path: Path) -> None:
    parameters, task, length = TEXT[name]
    trec = Path(os.environ.get("LCE_TEST_DATA", "")) / "trec"
    folders = {**stand_in_data(tmp_path), "trec": trec}
    found = results(
        name, parameters, length, task=task, tokenizer=line_tokenizer(), data_folders=folders
    )
    same_scores(*found)


def test_every_benchmark_that_asks_for_text_is_tried() -> None:
    asking = {
        name for name in BENCHMARKS.names() if issubclass(BENCHMARKS.load(name), PromptBenchmark)
    }
    assert asking == {*TEXT, "longbench"}  # whose own tests compare with and without early stops
