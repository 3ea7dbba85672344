"""Choices scored on shared prefixes, against a whole forward pass per choice without a cache.

The oracle is the model's forward pass over one text in the request of that text's length, for every
method of the registry. Models are random. They are float64 where a difference would be a mistake,
and float32 where the tolerance of the benchmarks is tested.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lce_core.evaluation import packed_texts
from lce_core.evaluation.continuations import continuation_log_likelihoods
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.models import MODELS
from tests.support.extended_models import SCHEMES, WITH_DEFAULTS, method

BASE = MODELS.parse({"name": "toy_llama"}, "test")
Text = tuple[np.ndarray, np.ndarray]


def toy(name: str, dtype: torch.dtype = torch.float64) -> ExtendedModel:
    return extend(BASE.initialise(3).to(dtype).eval(), BASE, method(name), target=256)


def choices(lengths: list[int], sizes: list[int]) -> list[Text]:
    """Questions of these lengths, which share their examples, with choices of these sizes."""
    rng = np.random.default_rng(7)
    shots, texts = rng.integers(256, size=max(lengths)), []
    for length in lengths:
        context = np.concatenate([shots[: length - 9], rng.integers(256, size=9)])
        texts += [(context, rng.integers(256, size=size)) for size in sizes]
    # One-token answers share their input; an answer may begin like another one.
    texts += [(texts[0][0], np.array([token])) for token in (3, 4)]
    return [*texts, (texts[0][0], np.append(texts[0][1], 5))]


@torch.no_grad()
def alone(model: ExtendedModel, text: Text) -> tuple[float, bool]:
    ids = np.concatenate(text)
    model.begin_request(len(ids))
    states = model.hidden_states(torch.from_numpy(ids[None]))[0]
    logits = model.model.get_output_embeddings()(states)[len(text[0]) - 1 : -1]
    targets = torch.from_numpy(text[1])
    total = logits.double().log_softmax(-1).gather(-1, targets[:, None]).sum()
    if model.inserter:
        logits[:, model.inserter.token] = -torch.inf
    return float(total), bool((logits.argmax(-1) == targets).all())


def tokens_passed(model: ExtendedModel, texts: list[Text], **how: Any) -> int:
    seen: list[int] = []
    decoder = model.model.get_decoder()
    handle = decoder.register_forward_pre_hook(
        lambda _, __, given: seen.append(given["input_ids"].numel()), with_kwargs=True
    )
    continuation_log_likelihoods(model, texts, **{"batch_tokens": 8192} | how)
    handle.remove()
    return sum(seen)


@pytest.mark.parametrize("name", WITH_DEFAULTS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-5), (torch.float32, 1e-4)], ids=["f64", "f32"]
)
def test_choices_score_as_if_each_were_read_alone(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    model, texts = toy(name, dtype), choices([150, 60, 210], [1, 7, 3, 7])
    expected = [alone(model, text) for text in texts]
    for share in (True, False):
        found = continuation_log_likelihoods(model, texts, batch_tokens=400, share_prefixes=share)
        np.testing.assert_allclose(
            [value for value, _ in found], [value for value, _ in expected], atol=tolerance
        )
        assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]


some_ids = st.lists(st.integers(0, 1), min_size=1, max_size=6).map(np.array)


@given(
    st.lists(st.tuples(some_ids, some_ids), min_size=1, max_size=8),
    st.integers(1, 40),
    st.integers(1, 6),
    st.sampled_from(["yarn", "dynamic_yarn", "landmark", SCHEMES[0]]),
)
@settings(max_examples=60)
def test_no_budget_and_no_common_prefix_changes_a_score(
    texts: list[Text], batch_tokens: int, packed: int, name: str
) -> None:
    model = toy(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_texts, "PACKED", packed)
        found = continuation_log_likelihoods(model, texts, batch_tokens=batch_tokens)
    for text, (value, greedy) in zip(texts, found, strict=True):
        expected, expected_greedy = alone(model, text)
        assert value == pytest.approx(expected, abs=1e-5)
        assert greedy == expected_greedy


@pytest.mark.parametrize("name", ["yarn", "self_extend", "landmark"])
def test_choices_of_a_question_read_its_context_once(name: str) -> None:
    model, rng = toy(name), np.random.default_rng(1)
    context = rng.integers(256, size=200)
    texts = [(context, rng.integers(256, size=5)) for _ in range(4)]
    # A choice needs the states of the context's last token and of its own tokens but the last.
    count = model.inserter.length if model.inserter else int
    once, apart = (tokens_passed(model, texts, share_prefixes=share) for share in (True, False))
    assert apart == 4 * count(204)
    assert once <= count(204) + 3 * 8
    if name != "landmark":
        assert once == 204 + 3 * 5


def test_frequencies_that_follow_the_length_share_within_a_length_only() -> None:
    model, rng = toy("dynamic_yarn"), np.random.default_rng(2)
    context = rng.integers(256, size=200)
    texts = [(context, rng.integers(256, size=size)) for size in (2, 2, 9, 9)]
    assert tokens_passed(model, texts) == 201 + 2 + 208 + 9


def test_in_half_precision_each_text_passes_alone() -> None:
    model, texts = toy("yarn", torch.bfloat16), choices([150, 60], [5, 3])
    distinct = {np.concatenate([context, choice[:-1]]).tobytes() for context, choice in texts}
    assert tokens_passed(model, texts) == sum(len(ids) // 8 for ids in distinct)
