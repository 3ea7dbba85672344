"""Prompts of several lengths in one batch, against each by itself.

Models are random and float64: what differs is a mistake and not rounding.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.evaluation.decoding import generate
from lce_core.evaluation.passes import batches
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import MODELS

BASE = MODELS.parse({"name": "toy_llama"}, "test")
LENGTHS = (150, 131, 150, 20, 160, 131, 1)


def toy(method: str, dtype: torch.dtype = torch.float64) -> ExtendedModel:
    model = BASE.initialise(3).to(dtype).eval()
    return extend(model, BASE, METHODS.parse({"name": method}, "test"), target=512)


def prompts() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(256, size=length) for length in LENGTHS]


def answers(model: ExtendedModel, budget: int, **how: object) -> list[list[int]]:
    found = generate(model, prompts(), max_new_tokens=6, batch_tokens=budget, **how)  # type: ignore[arg-type]
    return [answer.tolist() for answer in found]


@pytest.mark.parametrize(
    "method", ["none", "dynamic_yarn", "harpe", "clex", "self_extend", "lm_infinite", "landmark"]
)
def test_answers_are_those_of_each_prompt_alone(method: str) -> None:
    model = toy(method)
    alone = [
        generate(model, [prompt], max_new_tokens=6, batch_tokens=1000)[0].tolist()
        for prompt in prompts()
    ]
    assert answers(model, 400) == answers(model, 10_000, chunk=64) == alone
    # Some end early, whole groups of one length among them.
    rules = [lambda ids, number=number: len(ids) > number % 4 for number in range(len(LENGTHS))]
    stopped = answers(model, 10_000, stop=rules)
    assert stopped == [answer[: 1 + number % 4] for number, answer in enumerate(alone)]


def test_next_tokens_of_all_lengths_are_one_pass() -> None:
    seen: list[tuple[int, ...]] = []
    model = toy("none")
    model.model.get_decoder().register_forward_pre_hook(
        lambda _, __, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    answers(model, 10_000)
    assert seen == [(1, 1), (1, 20), (2, 131), (2, 150), (1, 160)] + [(7, 1)] * 5


@pytest.mark.parametrize(("method", "dtype"), [("landmark", None), ("none", torch.bfloat16)])
def test_inserted_tokens_and_half_precision_keep_lengths_apart(
    method: str, dtype: torch.dtype | None
) -> None:
    assert not toy(method, dtype or torch.float64).mixes_lengths
    assert toy("self_extend").mixes_lengths


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 30), st.booleans())
def test_batches_hold_what_the_budget_allows(lengths: list[int], budget: int, mixed: bool) -> None:
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
