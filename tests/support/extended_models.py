"""What tests of extended models run over: the contract's tiny models, and methods by name."""

from typing import Any

import pytest

from lce_core.contracts.tiny_models import BASES, LENGTHS
from lce_core.methods import METHODS, Method

over_bases = pytest.mark.parametrize("base", BASES, ids=["llama", "llama-gqa", "phi"])
WITH_DEFAULTS = [
    name
    for name in METHODS.names()
    if not any(field.is_required() for field in METHODS.load(name).model_fields.values())
]
"""Methods that a study may name without parameters."""
over_methods = pytest.mark.parametrize("name", METHODS.names())


def method(name: str, **parameters: Any) -> Method:
    """The method with these parameters; without any, with the last of its examples."""
    return METHODS.parse({"name": name, **(parameters or METHODS.load(name).examples[-1])}, "test")


SCHEMES = [name for name in METHODS.names() if method(name).attention(BASES[0].geometry, LENGTHS)]
"""Methods with attention of their own in use."""
