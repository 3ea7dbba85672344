"""Every registered base model and text source: where it comes from, evidence, identity.

What they do beyond that is tested on real files and checkpoints in tests/lce_core.
"""

import pytest
import torch

from lce_core.contracts import methods
from lce_core.contracts.findings import findings, trials
from lce_core.corpora import CORPORA
from lce_core.methods import METHODS
from lce_core.models import MODELS

TRIED = [
    pytest.param(registry, name, id=name)
    for registry in (MODELS, CORPORA)
    for name in registry.names()
]


@pytest.mark.parametrize(("registry", "name"), TRIED)
def test_a_base_model_or_corpus_keeps_the_contract(registry, name):
    for check, calls in trials(registry, registry.load(name), dict):
        for arguments in calls:
            check(*arguments)


def test_checks_run_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    # Threads of a busy machine wait for each other: a check of harpe took 53 s instead of 5 s.
    seen = []

    def check(*_: object) -> None:
        seen.append(torch.get_num_threads())

    monkeypatch.setattr(methods, "CHECKS", (check,))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert [one.fault for one in findings(METHODS, "none", lambda _: {})] == ["", ""]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1]
