"""Every registered base model and text source: where it comes from, evidence, identity.

What they do beyond that is tested on real files and checkpoints in tests/lce_core.
"""

from __future__ import annotations

from typing import Any

import pytest

from lce_core.contracts.findings import trials
from lce_core.corpora import CORPORA
from lce_core.models import MODELS
from lce_core.registry import Registry

TRIED = [
    pytest.param(registry, name, id=name)
    for registry in (MODELS, CORPORA)
    for name in registry.names()
]


@pytest.mark.parametrize(("registry", "name"), TRIED)
def test_a_base_model_or_corpus_keeps_the_contract(registry: Registry[Any], name: str) -> None:
    for check, calls in trials(registry, registry.load(name), dict):
        for arguments in calls:
            check(*arguments)
