"""Recorded and replayed passes of one token against plain ones, bit for bit."""

from typing import Any

import numpy as np
import pytest
import torch

from lce_core.attention.token_graphs import CudaRecorder
from lce_core.contracts.tiny_models import BASES, TARGET, fits, stock, tokens
from lce_core.errors import SpecError
from lce_core.evaluation.decoding import generate
from lce_core.evaluation.passes import counted
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.models import LanguageModel
from tests.support.extended_models import SCHEMES, method
from tests.support.on_devices import Place, over_places
from tests.support.recorded_operations import OperationRecorder

pytestmark = pytest.mark.usefixtures("inference")

BASE = BASES[0]


def pair(
    base: LanguageModel, name: str, place: Place | None = None
) -> tuple[ExtendedModel, ExtendedModel, Any]:
    device, dtype = (place.device, place.dtype) if place else (torch.device("cpu"), torch.float64)
    plain, recorded = (
        extend(stock(base).to(device, dtype), base, method(name), target=TARGET) for _ in range(2)
    )
    recorder: Any = CudaRecorder(device) if device.type == "cuda" else OperationRecorder()
    recorded.replay_tokens(recorder)
    return plain, recorded, recorder


def one_by_one(model: ExtendedModel, ids: torch.Tensor, prompt: int) -> torch.Tensor:
    """States of a prompt and of each of the tokens after it; texts leave in the middle."""
    cache = model.new_cache(ids.shape[1])
    found = [model.hidden_states(ids[:, :prompt], cache)[:, -1]]
    for place in range(prompt, ids.shape[1]):
        if place == prompt + 6:
            cache.batch_select_indices(torch.arange(1, len(ids), device=ids.device))
            ids = ids[1:]
        found.append(model.hidden_states(ids[:, place : place + 1], cache)[:, -1])
    return torch.cat(found)


@pytest.mark.parametrize("name", sorted({*SCHEMES, "none", "dynamic_yarn", "clex", "landmark"}))
def test_replayed_passes_give_the_states_of_plain_ones(name):
    base = next(base for base in (BASES[1], BASES[0]) if fits(method(name), base))
    plain, recorded, recorder = pair(base, name)
    for seed, length in ((0, 30), (1, 40), (2, 30)):  # another table for some methods
        ids = tokens(24, batch=3, seed=seed)
        for model in (plain, recorded):
            model.begin_request(length)
        assert torch.equal(one_by_one(plain, ids, 14), one_by_one(recorded, ids, 14))
    assert isinstance(recorder, OperationRecorder)
    assert recorder.num_recordings


def test_replayed_tokens_are_counted_like_plain_ones():
    numbers = []
    for model in pair(BASE, "yarn")[:2]:
        model.begin_request(30)
        with counted(model) as passed:
            one_by_one(model, tokens(30, batch=3, seed=0), 14)
        numbers.append(passed.tokens)
    # Three texts up to token 20, then two.
    assert numbers == [3 * 20 + 2 * 10] * 2


@over_places
@pytest.mark.parametrize(
    "name", ["dynamic_ntk_aware", "harpe", "self_extend", "lm_infinite", "landmark"]
)
def test_answers_are_those_of_plain_passes(name, place):
    plain, recorded, recorder = pair(BASE, name, place)
    prompts = [np.asarray(tokens(n, seed=n)[0]) for n in (9, 20, 20, 28)]
    expected, answers = (
        generate(model, prompts, max_new_tokens=12, batch_tokens=64) for model in (plain, recorded)
    )
    for wanted, answer in zip(expected, answers, strict=True):
        np.testing.assert_array_equal(answer, wanted)
    if place.dtype == torch.bfloat16 and isinstance(recorder, OperationRecorder):
        assert recorder.num_recordings


def test_a_recording_serves_all_tokens_and_texts_under_its_frequencies():
    _, recorded, recorder = pair(BASE, "yarn")
    assert isinstance(recorder, OperationRecorder)
    a_pass = recorded.model.config.num_hidden_layers + 1
    for seed in range(3):
        recorded.begin_request(30)
        cache = recorded.new_cache(30)
        recorded.hidden_states(tokens(14, batch=2, seed=seed), cache)
        for _ in range(8):
            recorded.hidden_states(tokens(1, batch=2, seed=seed), cache)
    assert recorder.num_recordings == a_pass


def test_a_text_beyond_its_request_is_refused_and_changes_nothing():
    _, recorded, _ = pair(BASE, "none")
    recorded.begin_request(16)
    cache = recorded.new_cache(16)
    recorded.hidden_states(tokens(14), cache)
    for _ in range(2):
        recorded.hidden_states(tokens(1), cache)
    with pytest.raises(SpecError, match="17 tokens"):
        recorded.hidden_states(tokens(1), cache)
    assert cache.get_seq_length() == 16


def test_a_pass_that_fails_while_it_is_recorded_leaves_a_model_that_works():
    plain, recorded, _ = pair(BASE, "none")
    ids, number = tokens(20, batch=1), 0
    for model in (plain, recorded):
        model.begin_request(20)

    def failing(*_: object) -> None:
        nonlocal number
        number += 1
        if number == 2:
            raise torch.OutOfMemoryError

    recorded.model.model.layers[1].register_forward_pre_hook(failing)
    cache = recorded.new_cache(20)
    recorded.hidden_states(ids[:, :9], cache)
    number = 0
    recorded.hidden_states(ids[:, 9:10], cache)
    with pytest.raises(torch.OutOfMemoryError):
        recorded.hidden_states(ids[:, 10:11], cache)
    assert cache.get_seq_length() == 10
    found = torch.cat([recorded.hidden_states(ids[:, n : n + 1], cache) for n in range(10, 20)])
    expected = plain.hidden_states(ids, plain.new_cache(20))[0, 10:]
    torch.testing.assert_close(found[:, 0], expected, rtol=0, atol=1e-12)
