"""Every registered benchmark keeps the contract, with each example.

The checks are in lce_core/contracts/benchmarks.py; test_planted_faults.py shows what they catch. No
list of benchmarks stands here: a new plug-in is tried once its file is there.
"""

from functools import partial
from pathlib import Path

import pytest

from lce_core.benchmarks import BENCHMARKS, Benchmark, TextBenchmark
from lce_core.contracts.benchmark_cases import Case, Data, cases
from lce_core.contracts.benchmarks import (
    BenchmarkCheck,
    check_cell,
    check_evidence,
    check_form,
    check_repeatable,
    check_savings,
    check_seed,
    checks,
)
from tests.support.data.fixture_data import fixture_folders


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("stand-ins")


def tried(plugin: type[Benchmark], check: BenchmarkCheck, data: Data) -> list[Case]:
    """Cases in which a check can find something that it does not find in another one."""
    every = cases(plugin, data)
    if check is check_evidence:  # it looks at the class alone
        return every[:1]
    text = issubclass(plugin, TextBenchmark)
    twice = check in (check_repeatable, check_savings)
    first = [case for case in every if case.example is plugin.examples[0]]
    if check is check_seed or (twice and not text):
        # One with prompts in words and one with key tokens; check_seed tries all cases itself.
        return list({case.in_words: case for case in first}.values())
    if check is check_form or text:
        # Perplexity has two kinds of strides.
        return [case for case in every if not (twice and case.profile in ("fast", "tiny"))]
    # `clean` and `fast` differ in the number of prompts, which the examples set for both.
    return [case for case in (first if check is check_cell else every) if case.profile != "clean"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(name, check, id=f"{name}-{check.__name__.removeprefix('check_')}")
        for name in BENCHMARKS.names()
        for check in checks(BENCHMARKS.load(name))
    ],
)
def test_a_benchmark_keeps_the_contract(name, check, root):
    found = tried(BENCHMARKS.load(name), check, partial(fixture_folders, root=root))
    assert found
    for case in found:
        check(case)
