"""Every registered benchmark keeps the contract, with each example in each profile.

The checks are in lce_core/contracts/benchmarks.py; test_planted_faults.py shows what they catch. No
list of benchmarks stands here: a new plug-in is tried once its file is there.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from lce_core.benchmarks import BENCHMARKS
from lce_core.contracts.benchmark_cases import cases
from lce_core.contracts.benchmarks import OF_ALL, OF_PROMPTS, BenchmarkCheck, checks
from tests.support.data.fixture_data import fixture_folders


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stand-ins")


@pytest.mark.slow
@pytest.mark.parametrize(
    "check", [*OF_ALL, *OF_PROMPTS], ids=lambda check: check.__name__.removeprefix("check_")
)
@pytest.mark.parametrize("name", BENCHMARKS.names())
def test_a_benchmark_keeps_the_contract(name: str, check: BenchmarkCheck, root: Path) -> None:
    plugin = BENCHMARKS.load(name)
    if check in checks(plugin):
        for case in cases(plugin, partial(fixture_folders, root=root)):
            check(case)
