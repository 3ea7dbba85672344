"""Texts that share a cache, against each by itself: two small cases."""

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from lce_core.contracts.tiny_models import VOCABULARY
from lce_core.evaluation.decoding import generate
from lce_core.evaluation.packed_texts import PackedTexts
from tests.support.toy_models import tiny


@torch.no_grad()
@pytest.mark.parametrize("held", [0, 2])
def test_packed_texts_stand_at_their_own_positions(held):
    model = tiny("yarn")
    model.begin_request(12)
    found = [np.array(text) for text in ([1, 2, 3], [1, 2, 3, 4, 5], [1, 7], [9, 8, 7, 6])]
    cache = DynamicCache()
    if held:
        model.hidden_states(torch.from_numpy(found[0][None, :held]), cache)
    packed = PackedTexts(model, found, cache, held, 4096)

    def alone(row: int) -> torch.Tensor:
        return model.hidden_states(torch.from_numpy(found[row][None]))[0, -1]

    expected = torch.stack([alone(row) for row in range(4)])
    torch.testing.assert_close(packed.prefill(), expected, atol=1e-10, rtol=0)
    states = packed.follow([0, 2, 3], torch.tensor([5, 6, 7]))
    for row, token in ((0, 5), (2, 6), (3, 7)):
        found[row] = np.append(found[row], token)
    expected = torch.stack([alone(row) for row in (0, 2, 3)])
    torch.testing.assert_close(states, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("method", ["yarn", "self_extend"])
def test_a_prompt_may_go_on_where_the_answer_before_it_ended(method):
    model, rng = tiny(method), np.random.default_rng(0)
    first = rng.integers(VOCABULARY, size=25)
    (answer,) = generate(model, [first], max_new_tokens=4, batch_tokens=100)
    prompts = [first, np.concatenate([first, answer, [6, 7]])]
    apart, shared = (
        generate(model, prompts, max_new_tokens=4, batch_tokens=1, share_prefixes=sharing)
        for sharing in (False, True)
    )
    assert [row.tolist() for row in shared] == [row.tolist() for row in apart]
