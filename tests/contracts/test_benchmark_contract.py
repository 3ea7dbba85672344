"""Every registered benchmark keeps the contract, with each example.

The checks are in lce_core/contracts/benchmarks.py; test_planted_faults.py shows what they catch. No
list of benchmarks stands here: a new plug-in is tried once its file is there.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from lce_core.benchmarks import BENCHMARKS, PromptBenchmark
from lce_core.contracts.benchmark_cases import cases
from lce_core.contracts.benchmarks import (
    BenchmarkCheck,
    check_form,
    check_repeatable,
    check_savings,
    checks,
)
from tests.support.data.fixture_data import fixture_folders


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stand-ins")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(name, check, id=f"{name}-{check.__name__.removeprefix('check_')}")
        for name in BENCHMARKS.names()
        for check in checks(BENCHMARKS.load(name))
    ],
)
def test_a_benchmark_keeps_the_contract(name: str, check: BenchmarkCheck, root: Path) -> None:
    plugin, left_out = BENCHMARKS.load(name), set()
    if issubclass(plugin, PromptBenchmark) and check is not check_form:
        # `clean` and `fast` differ in the number of prompts, which the examples set for both.
        left_out = (
            {"clean", "faithful"} if check in (check_repeatable, check_savings) else {"clean"}
        )
    for case in cases(plugin, partial(fixture_folders, root=root)):
        if case.profile not in left_out:
            check(case)
