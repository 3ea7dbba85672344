"""Choices scored on shared prefixes, against a whole forward pass per choice without a cache."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.contracts.tiny_models import VOCABULARY
from lce_core.evaluation import packed_texts
from lce_core.evaluation.continuations import continuation_log_likelihoods
from lce_core.extension.extended_model import ExtendedModel
from tests.support.extended_models import SCHEMES, WITH_DEFAULTS
from tests.support.toy_models import num_tokens, passes_of, tiny, toy

Text = tuple[np.ndarray, np.ndarray]


def choices(lengths: list[int], sizes: list[int]) -> list[Text]:
    """Questions of these lengths, which share their examples, with choices of these sizes."""
    rng = np.random.default_rng(7)
    shots, texts = rng.integers(VOCABULARY, size=max(lengths)), []
    for length in lengths:
        context = np.concatenate([shots[: length - 9], rng.integers(VOCABULARY, size=9)])
        texts += [(context, rng.integers(VOCABULARY, size=size)) for size in sizes]
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
    seen = passes_of(model)
    continuation_log_likelihoods(model, texts, **{"batch_tokens": 8192} | how)
    return num_tokens(seen)


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [(name, torch.float64, 1e-5) for name in WITH_DEFAULTS]
    + [(name, torch.float32, 1e-4) for name in ("none", "dynamic_yarn", "self_extend")],
)
def test_choices_score_as_if_each_were_read_alone(name, dtype, tolerance):
    model, texts = tiny(name, dtype), choices([30, 12, 33], [1, 7, 3])
    expected = [alone(model, text) for text in texts]
    for share in (True, False):
        found = continuation_log_likelihoods(model, texts, batch_tokens=80, share_prefixes=share)
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
def test_no_budget_and_no_common_prefix_changes_a_score(texts, batch_tokens, packed, name):
    model = tiny(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_texts, "PACKED", packed)
        found = continuation_log_likelihoods(model, texts, batch_tokens=batch_tokens)
    for text, (value, greedy) in zip(texts, found, strict=True):
        expected, expected_greedy = alone(model, text)
        assert value == pytest.approx(expected, abs=1e-5)
        assert greedy == expected_greedy


@pytest.mark.parametrize("name", ["yarn", "self_extend", "landmark"])
def test_choices_of_a_question_read_its_context_once(name):
    rng = np.random.default_rng(1)
    context = rng.integers(256, size=200)
    texts = [(context, rng.integers(256, size=5)) for _ in range(4)]
    # A choice needs the states of the context's last token and of its own tokens but the last.
    inserter = toy(name).inserter
    count = inserter.length if inserter else int
    once, apart = (tokens_passed(toy(name), texts, share_prefixes=share) for share in (True, False))
    assert apart == 4 * count(204)
    assert once <= count(204) + 3 * 8
    if name != "landmark":
        assert once == 204 + 3 * 5


def test_in_half_precision_each_text_passes_alone():
    texts = choices([30, 12], [5, 3])
    distinct = {np.concatenate([context, choice[:-1]]).tobytes() for context, choice in texts}
    passed = tokens_passed(tiny("yarn", torch.bfloat16), texts)
    assert passed == sum(len(ids) // 8 for ids in distinct)
