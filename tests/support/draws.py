"""Numbers that decide what a test kills, changes or draws."""

import os
from collections.abc import Iterable

import pytest


def draws(fixed: Iterable[int]) -> pytest.MarkDecorator:
    """Parametrise a test by `number`: the fixed ones, or those that LCE_DRAWS names ("17,18").

    `make test-random` names random ones; a failed test's id ends with its number.
    """
    named = os.environ.get("LCE_DRAWS")
    return pytest.mark.parametrize("number", map(int, named.split(",")) if named else fixed)
