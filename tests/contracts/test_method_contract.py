"""Every registered method keeps the contract, with each of its examples.

The checks are in lce_core/contracts/methods.py; faults planted in copies of plug-ins show what each
of them catches (test_planted_faults.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch

from lce_core.contracts.methods import CHECKS, MethodCheck
from lce_core.methods import METHODS

TRIED = [
    pytest.param(name, example, id=f"{name}-{number}")
    for name in METHODS.names()
    for number, example in enumerate(METHODS.load(name).examples)
]


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize(("name", "example"), TRIED)
def test_a_method_keeps_the_contract(
    name: str, example: Mapping[str, Any], check: MethodCheck
) -> None:
    check(METHODS.load(name), example)
