"""The toy studies run every method and benchmark, except those listed here with a reason."""

from __future__ import annotations

import pytest

from flows.settings import study_path
from lce_core.benchmarks import BENCHMARKS
from lce_core.methods import METHODS
from lce_core.study.spec import StudySpec
from lce_core.study.study_file import load_study

METHODS_LEFT_OUT: dict[str, str] = {}
"""Shipped methods that no toy study runs: the reason."""
NEEDS_DATA = "reads a data set from a folder"
BENCHMARKS_LEFT_OUT = {
    "longbench": ("understanding", NEEDS_DATA),
    "longbench_v2": ("understanding", NEEDS_DATA),
    "multi_key": ("retrieval", "asks the keys of `multi_turn`, without the conversation"),
    "nolima": ("reasoning", NEEDS_DATA),
    "perplexity_documents": ("text", "measures what `perplexity` does, over whole documents"),
    "short_context": ("understanding", NEEDS_DATA),
}
"""Shipped benchmarks that no toy study runs: kind and reason."""


@pytest.fixture(scope="module")
def studies() -> list[StudySpec]:
    return [load_study(study_path(name)) for name in ("toy", "toy-beyond")]


def test_every_method_is_in_a_toy_study(studies: list[StudySpec]) -> None:
    run = {variant.method.plugin_name for study in studies for variant in study.methods}
    assert set(METHODS.names()) - run == METHODS_LEFT_OUT.keys()


def test_every_benchmark_is_in_a_toy_study(studies: list[StudySpec]) -> None:
    run = {entry.benchmark.plugin_name for study in studies for entry in study.benchmarks}
    left_out = set(BENCHMARKS.names()) - run
    kinds = {name: BENCHMARKS.load(name).kind for name in left_out}
    assert kinds == {name: kind for name, (kind, _) in BENCHMARKS_LEFT_OUT.items()}
    for name in left_out:
        needs_data = BENCHMARKS_LEFT_OUT[name][1] == NEEDS_DATA
        one = BENCHMARKS.load(name)()
        assert needs_data == all(one.reads(task) for task in one.tasks())


def test_the_toy_studies_run_every_kind_of_benchmark_that_needs_no_data(
    studies: list[StudySpec],
) -> None:
    run = {entry.benchmark.kind for study in studies for entry in study.benchmarks}
    assert run == {"text", "retrieval", "reasoning", "learning"}
