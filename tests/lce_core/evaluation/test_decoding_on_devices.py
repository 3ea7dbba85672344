"""Greedy decoding over a cache chooses, on each device, what a pass without a cache holds for best.

For every method, on tiny random models. The oracle never sees a cache: it reads prompt and answer
at once, in the same dtype, and may prefer another token by no more than rounding.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lce_core.contracts.tiny_models import BASES, TARGET, VOCABULARY, fits, stock
from lce_core.evaluation.decoding import generate
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from tests.support.extended_models import method, over_methods
from tests.support.losses import window_nll
from tests.support.on_devices import Place, over_places

NEW_TOKENS = 12


def extended_on(place: Place, name: str) -> ExtendedModel:
    base, chosen = BASES[1], method(name)
    if not fits(chosen, base):
        base = BASES[0]
    assert fits(chosen, base), name
    model = stock(base).to(place.device, place.dtype)
    return extend(model, base, chosen, target=TARGET)


@torch.no_grad()
def logits_at_once(model: ExtendedModel, text: np.ndarray) -> torch.Tensor:
    """Logits (tokens, vocabulary of text) of a whole text, on the CPU in float64."""
    ids = torch.from_numpy(text)[None].to(model.model.device)
    model.begin_request(len(text))
    head = model.model.get_output_embeddings()
    return head(model.hidden_states(ids))[0, :, :VOCABULARY].cpu().double()


@over_places
@over_methods
def test_cached_answers_are_what_a_pass_without_cache_prefers(place: Place, name: str) -> None:
    if name == "landmark" and place.dtype == torch.float32:
        place = Place(place.device, torch.float64)  # rounding may tip which blocks are read
    model, rng = extended_on(place, name), np.random.default_rng(1)
    prompts = [rng.integers(VOCABULARY, size=size) for size in (13, 13, 28)]
    answers = generate(model, prompts, max_new_tokens=NEW_TOKENS, batch_tokens=64, chunk=16)
    for prompt, answer in zip(prompts, answers, strict=True):
        assert len(answer) == NEW_TOKENS
        found = logits_at_once(model, np.concatenate([prompt, answer]))[len(prompt) - 1 : -1]
        chosen = found.gather(1, torch.from_numpy(answer)[:, None])[:, 0]
        rounding = 0.1 if place.dtype == torch.bfloat16 else 1e-4
        agree = found.amax(1) - chosen <= rounding * found.std()
        if name == "landmark" and place.dtype == torch.bfloat16:
            assert agree.double().mean() > 0.8
        else:
            assert agree.all()


@over_places
@pytest.mark.parametrize("name", ["none", "yarn", "self_extend", "lm_infinite", "landmark"])
def test_losses_are_those_of_float64_on_the_cpu(place: Place, name: str) -> None:
    windows = np.random.default_rng(2).integers(VOCABULARY, size=(2, 40))
    ours = window_nll(extended_on(place, name), windows, batch_tokens=80)
    oracle = extended_on(Place(torch.device("cpu"), torch.float64), name)
    theirs = window_nll(oracle, windows, batch_tokens=80)
    # A random model doubles what it is given in every layer, so single tokens tell little in bf16.
    if place.dtype == torch.float32:
        np.testing.assert_allclose(ours, theirs, atol=1e-3)
    else:
        assert ours.mean() == pytest.approx(theirs.mean(), rel=0.05)
        assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.9
