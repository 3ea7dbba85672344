"""Greedy decoding against transformers' generate and, on each device, without a cache."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from lce_core.contracts.tiny_models import VOCABULARY
from lce_core.errors import NonFiniteError, SpecError
from lce_core.evaluation.decoding import generate
from lce_core.extension.extended_model import ExtendedModel
from tests.support.cells import TOY
from tests.support.extended_models import SCHEMES, over_methods
from tests.support.losses import window_nll
from tests.support.on_devices import Place, over_places
from tests.support.toy_models import num_tokens, passes_of, tiny, toy, whole_logits


def _extended() -> ExtendedModel:
    return toy("none", torch.float32, seed=5)


def _prompts(count: int, length: int) -> NDArray[np.int64]:
    return np.random.default_rng(length).integers(256, size=(count, length))


@pytest.mark.parametrize("length", [1, 50, 150])
def test_greedy_decoding_is_that_of_transformers(length):
    stock = TOY.initialise(5).eval()
    prompts = _prompts(4, length)
    expected = stock.generate(
        torch.from_numpy(prompts),
        attention_mask=torch.ones(prompts.shape, dtype=torch.long),
        max_new_tokens=12,
        do_sample=False,
        pad_token_id=0,
    )[:, length:]
    found = generate(_extended(), prompts, max_new_tokens=12, batch_tokens=1000)
    np.testing.assert_array_equal(np.stack(found), expected.numpy())


@over_methods
def test_cached_decoding_is_decoding_from_scratch_at_every_step(name):
    extended = tiny(name)
    prompts = np.random.default_rng(0).integers(VOCABULARY, size=(2, 34))
    found = generate(extended, prompts, max_new_tokens=6, batch_tokens=90, chunk=13)
    for prompt, answer in zip(prompts, found, strict=True):
        text = np.concatenate([prompt, answer])
        # Every token of the answer follows from all before it, in the request of the whole text.
        likeliest = whole_logits(extended, text).argmax(-1)[len(prompt) - 1 : -1]
        np.testing.assert_array_equal(answer, likeliest)


def test_the_models_own_end_token_ends_an_answer():
    prompts, extended = _prompts(1, 30), _extended()
    full = generate(extended, prompts, max_new_tokens=10, batch_tokens=100)[0]
    extended.model.generation_config.eos_token_id = [int(full[3]), 391]
    first = full.tolist().index(int(full[3]))
    found = generate(extended, prompts, max_new_tokens=10, batch_tokens=100)[0]
    assert found.tolist() == full[: first + 1].tolist()


def test_only_last_positions_are_projected_onto_the_vocabulary():
    extended, seen = _extended(), []
    head = extended.model.get_output_embeddings()
    head.register_forward_hook(lambda _, args, __: seen.append(tuple(args[0].shape)))
    generate(extended, _prompts(3, 64), max_new_tokens=2, batch_tokens=1000)
    assert seen == [(3, 96), (3, 96)]


def test_no_forward_pass_exceeds_the_token_limit_beyond_one_prompt():
    extended = _extended()
    seen = passes_of(extended)
    generate(extended, _prompts(3, 64), max_new_tokens=1, batch_tokens=20)
    assert max(num_tokens([one]) for one in seen) <= 20


@pytest.mark.parametrize(("length", "new"), [(0, 3), (4, 0)])
def test_empty_requests_are_refused(length, new):
    with pytest.raises(SpecError, match="at least 1"):
        generate(
            _extended(), np.zeros((2, length), dtype=np.int64), max_new_tokens=new, batch_tokens=8
        )


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_not_finite_are_an_error(number):
    extended = _extended()

    def of_one_token(_module: object, _given: object, logits: torch.Tensor) -> None:
        logits[..., 7] = number

    extended.model.get_output_embeddings().register_forward_hook(of_one_token)
    with torch.no_grad(), pytest.raises(NonFiniteError, match="token 1 of 1 answers"):
        generate(extended, _prompts(1, 8), max_new_tokens=1, batch_tokens=8)


@over_places
@pytest.mark.parametrize("name", sorted({*SCHEMES, "none", "dynamic_yarn", "clex", "landmark"}))
def test_cached_answers_are_what_a_pass_without_cache_prefers(place, name):
    if name == "landmark" and place.dtype == torch.float32:
        place = Place(place.device, torch.float64)  # rounding may tip which blocks are read
    model, rng = tiny(name, place.dtype, place.device), np.random.default_rng(1)
    prompts = [rng.integers(VOCABULARY, size=size) for size in (13, 13, 28)]
    answers = generate(model, prompts, max_new_tokens=12, batch_tokens=64, chunk=16)
    for prompt, answer in zip(prompts, answers, strict=True):
        assert len(answer) == 12
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
