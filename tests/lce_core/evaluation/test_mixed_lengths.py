"""Prompts of several lengths in one batch, against each by itself."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.contracts.tiny_models import VOCABULARY
from lce_core.evaluation.decoding import generate
from lce_core.evaluation.passes import batches
from lce_core.extension.extended_model import ExtendedModel
from tests.support.extended_models import over_methods
from tests.support.toy_models import passes_of, tiny

LENGTHS = (30, 5, 25, 30, 1)
RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(VOCABULARY, size=length) for length in LENGTHS]


def answers(model: ExtendedModel, budget: int, **how: Any) -> list[list[int]]:
    found = generate(model, PROMPTS, max_new_tokens=4, batch_tokens=budget, **how)
    return [answer.tolist() for answer in found]


@over_methods
def test_answers_are_those_of_each_prompt_alone(name):
    model = tiny(name)
    alone = [
        generate(model, [prompt], max_new_tokens=4, batch_tokens=1000)[0].tolist()
        for prompt in PROMPTS
    ]
    assert answers(model, 80) == answers(model, 10_000, chunk=16) == alone
    # Some end early, whole groups of one length among them.
    rules = [lambda ids, number=number: len(ids) > number % 4 for number in range(len(LENGTHS))]
    stopped = answers(model, 10_000, stop=rules)
    assert stopped == [answer[: 1 + number % 4] for number, answer in enumerate(alone)]


def test_next_tokens_of_all_lengths_are_one_pass():
    model = tiny("none")
    seen = passes_of(model)
    answers(model, 10_000)
    assert seen == [(1, 1), (1, 5), (1, 25), (2, 30)] + [(5, 1)] * 3


def test_inserted_tokens_and_half_precision_keep_lengths_apart():
    assert tiny("self_extend").mixes_lengths
    assert not tiny("landmark").mixes_lengths
    assert not tiny("none", torch.bfloat16).mixes_lengths


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 30), st.booleans())
def test_batches_hold_what_the_budget_allows(lengths, budget, mixed):
    found = list(batches(lengths, budget, mixed=mixed))
    sizes = [[lengths[text] for text in batch] for batch in found]
    assert [length for batch in sizes for length in batch] == sorted(lengths)
    assert sorted(text for batch in found for text in batch) == list(range(len(lengths)))
    for batch in sizes:
        assert sum(batch) <= budget or len(batch) == 1
        assert mixed or len(set(batch)) == 1
    for batch, following in pairwise(sizes):  # each is as large as it can be
        full = sum(batch) + following[0] > budget
        assert full or (not mixed and following[0] != batch[0])
