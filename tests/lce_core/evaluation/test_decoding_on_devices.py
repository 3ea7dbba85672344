"""Cached greedy decoding on each device chooses what a pass without a cache prefers."""

import numpy as np
import pytest
import torch

from lce_core.contracts.tiny_models import VOCABULARY
from lce_core.evaluation.decoding import generate
from tests.support.extended_models import SCHEMES
from tests.support.losses import window_nll
from tests.support.on_devices import Place, over_places
from tests.support.toy_models import tiny, whole_logits

NEW_TOKENS = 12


@over_places
@pytest.mark.parametrize("name", sorted({*SCHEMES, "none", "dynamic_yarn", "clex", "landmark"}))
def test_cached_answers_are_what_a_pass_without_cache_prefers(place, name):
    if name == "landmark" and place.dtype == torch.float32:
        place = Place(place.device, torch.float64)  # rounding may tip which blocks are read
    model, rng = tiny(name, place.dtype, place.device), np.random.default_rng(1)
    prompts = [rng.integers(VOCABULARY, size=size) for size in (13, 13, 28)]
    answers = generate(model, prompts, max_new_tokens=NEW_TOKENS, batch_tokens=64, chunk=16)
    for prompt, answer in zip(prompts, answers, strict=True):
        assert len(answer) == NEW_TOKENS
        logits = whole_logits(model, np.concatenate([prompt, answer]))
        found = logits[len(prompt) - 1 : -1].cpu().double()
        chosen = found.gather(1, torch.from_numpy(answer)[:, None])[:, 0]
        rounding = 0.1 if place.dtype == torch.bfloat16 else 1e-4
        agree = found.amax(1) - chosen <= rounding * found.std()
        if name == "landmark" and place.dtype == torch.bfloat16:
            assert agree.double().mean() > 0.8
        else:
            assert agree.all()


@over_places
@pytest.mark.parametrize("name", ["none", "yarn", "self_extend", "lm_infinite", "landmark"])
def test_losses_are_those_of_float64_on_the_cpu(place, name):
    windows = np.random.default_rng(2).integers(VOCABULARY, size=(2, 40))
    ours = window_nll(tiny(name, place.dtype, place.device), windows, batch_tokens=80)
    theirs = window_nll(tiny(name), windows, batch_tokens=80)
    # A random model doubles what it is given in every layer, so single tokens tell little in bf16.
    if place.dtype == torch.float32:
        np.testing.assert_allclose(ours, theirs, atol=1e-3)
    else:
        assert ours.mean() == pytest.approx(theirs.mean(), rel=0.05)
        assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.9
