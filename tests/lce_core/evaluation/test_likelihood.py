"""Window losses against transformers' own loss over full logits, one window at a time."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from lce_core.errors import NonFiniteError, SpecError
from lce_core.evaluation.decoding import generate
from lce_core.evaluation.likelihood import window_scores
from lce_core.extension.extended_model import ExtendedModel
from tests.support.cells import TOY
from tests.support.losses import window_nll
from tests.support.toy_models import toy


def _pair(method: str = "none") -> tuple[torch.nn.Module, ExtendedModel]:
    return TOY.initialise(3).eval(), toy(method, torch.float32)


def _windows(count: int, length: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(256, size=(count, length))


def _oracle(model: torch.nn.Module, window: NDArray[np.int64]) -> NDArray[np.float32]:
    ids = torch.from_numpy(window)[None]
    with torch.no_grad():
        logits = model(ids).logits[0, :-1]
    return functional.cross_entropy(logits, ids[0, 1:], reduction="none").numpy()


@pytest.mark.parametrize("length", [2, 7, 200])
def test_window_losses_are_those_of_full_logits(length):
    stock, extended = _pair()
    windows = _windows(5, length)
    found = window_nll(extended, windows, batch_tokens=3 * length)
    assert found.dtype == np.float32
    assert found.shape == (5, length - 1)
    np.testing.assert_allclose(found, [_oracle(stock, w) for w in windows], atol=1e-4, rtol=0)


def _half_predicted(model: torch.nn.Module, count: int, length: int) -> NDArray[np.int64]:
    """Texts of which about half the tokens are what the model holds for likeliest."""
    rng = np.random.default_rng(4)
    ids = torch.from_numpy(rng.integers(256, size=(count, 1)))
    while ids.shape[1] < length:
        with torch.no_grad():
            likeliest = model(ids).logits[:, -1].argmax(-1).numpy()
        drawn = np.where(rng.random(count) < 0.5, likeliest, rng.integers(256, size=count))
        ids = torch.cat([ids, torch.from_numpy(drawn)[:, None]], dim=1)
    return ids.numpy()


@pytest.mark.parametrize("batch_tokens", [1, 90, 10_000])
def test_hits_are_the_tokens_that_full_logits_hold_for_likeliest(batch_tokens):
    stock, extended = _pair()
    texts = _half_predicted(stock, 7, 31)
    with torch.no_grad():
        likeliest = stock(torch.from_numpy(texts)).logits[:, :-1].argmax(-1).numpy()
    expected = likeliest == texts[:, 1:]
    assert 0.3 < expected.mean() < 0.7
    assert 0 < expected[:, -1].sum() < 7
    whole = window_scores(
        extended, texts[:, :-1], following=texts[:, -1], batch_tokens=batch_tokens
    )
    np.testing.assert_array_equal(whole.hits, expected)
    ended = window_scores(extended, texts[:, :-1], batch_tokens=batch_tokens)
    np.testing.assert_array_equal(ended.hits[:, :-1], expected[:, :-1])
    assert not ended.hits[:, -1].any(), "nothing behind the windows was right"
    np.testing.assert_array_equal(ended.nll, whole.nll)


def test_windows_without_a_token_to_score_are_refused():
    _, extended = _pair()
    with pytest.raises(SpecError, match="at least 2 tokens"):
        window_nll(extended, _windows(1, 1), batch_tokens=8)


def test_a_loss_that_is_not_finite_names_window_and_token():
    _, extended = _pair()
    with torch.no_grad():
        extended.model.get_input_embeddings().weight[7] = float("nan")
    windows = np.ones((3, 6), dtype=np.int64)
    windows[1, 2] = 7
    with pytest.raises(NonFiniteError, match="window 0, token 1"):
        # Tied weights: the poisoned row is also a row of the vocabulary projection.
        window_nll(extended, windows, batch_tokens=6)


def test_what_greedy_decoding_chooses_is_a_hit_whatever_the_landmarks_logit():
    _, extended = _pair("landmark")
    token = extended.inserter.token if extended.inserter else -1
    head = extended.model.get_output_embeddings().weight
    with torch.no_grad():  # a landmark that is as likely as the likeliest token of text, and more
        head[token] = 30 * head[:token].mean(0)
    prompts = _windows(3, 90)
    answers = generate(extended, list(prompts), max_new_tokens=40, batch_tokens=1000)
    texts = np.concatenate([prompts, np.stack(answers)], axis=1)
    extended.begin_request(texts.shape[1])
    with torch.no_grad():
        logits = head @ extended.hidden_states(torch.from_numpy(texts)).mT
    chosen = logits.argmax(1)[:, 89:-1]
    assert (chosen == token).any()
    found = window_scores(extended, texts, batch_tokens=1000)
    assert found.hits[:, 89:-1].all()
