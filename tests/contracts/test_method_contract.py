"""Every registered method keeps the contract, with each of its examples.

The checks are in lce_core/contracts/methods.py; faults planted in copies of plug-ins show what each
of them catches (test_planted_faults.py).
"""

import pytest

from lce_core.contracts.methods import CHECKS, check_defaults_fit_real_models, check_parameters
from lce_core.methods import METHODS

pytestmark = pytest.mark.usefixtures("inference")

OF_THE_CLASS = (check_defaults_fit_real_models, check_parameters)
"""Checks that do the same for every example."""
TRIED = [
    pytest.param(
        name, example, check, id=f"{name}-{number}-{check.__name__.removeprefix('check_')}"
    )
    for name in METHODS.names()
    for number, example in enumerate(METHODS.load(name).examples)
    for check in CHECKS
    if number == 0 or check not in OF_THE_CLASS
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "example", "check"), TRIED)
def test_a_method_keeps_the_contract(name, example, check):
    check(METHODS.load(name), example)
