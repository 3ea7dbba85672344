"""Prompts that begin alike, side by side in one cache, or of several lengths in one batch, against
each by itself; their order against brute force over all orders."""

from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache

from lce_core.contracts.tiny_models import BASES, TARGET, VOCABULARY, stock
from lce_core.evaluation import packed_texts
from lce_core.evaluation.decoding import generate
from lce_core.evaluation.packed_texts import PackedTexts
from lce_core.evaluation.passes import (
    batches,
    bundles,
    common_prefix,
    num_distinct_tokens,
    reusable,
    sharing_order,
)
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from tests.support.extended_models import method, over_methods
from tests.support.toy_models import num_tokens, passes_of, tiny, toy

MADE = [extend(stock(base), base, method("yarn"), target=TARGET) for base in BASES]
texts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=7)


def alone(model: ExtendedModel, text: np.ndarray) -> torch.Tensor:
    return model.hidden_states(torch.from_numpy(text[None]))[0, -1]


@pytest.mark.parametrize(
    ("model", "packed", "chunk"),
    [(MADE[0], 3, 4096), (MADE[1], 512, 4096), (MADE[1], 3, 2), (MADE[2], 3, 2)],
    ids=["llama", "llama-gqa", "llama-gqa-chunks", "phi"],
)
@given(prompts=texts, held=st.integers(0, 8), following=st.lists(st.integers(0, 2), min_size=9))
@torch.no_grad()
def test_states_are_those_of_each_text_by_itself(model, packed, chunk, prompts, held, following):
    found = [np.array(prompt, dtype=np.int64) for prompt in prompts]
    found = [found[index] for index in sharing_order(found)]
    model.begin_request(12)
    cache, held = DynamicCache(), min(held, len(found[0]) - 1)
    if held:
        model.hidden_states(torch.from_numpy(found[0][None, :held]), cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_texts, "PACKED", packed)
        side_by_side = PackedTexts(model, found, cache, held, chunk)
        states = side_by_side.prefill()
        torch.testing.assert_close(
            states, torch.stack([alone(model, text) for text in found]), atol=1e-10, rtol=0
        )
        chosen = list(range(len(found)))
        for start, step in enumerate((1, 2, 2)):  # all go on, then every second one of them
            kept_places = list(range(0, len(chosen), step))
            chosen = [chosen[place] for place in kept_places]
            ids = np.array([following[(start + row) % 9] for row in chosen])
            states = side_by_side.follow(kept_places, torch.from_numpy(ids))
            for row, token in zip(chosen, ids, strict=True):
                found[row] = np.append(found[row], token)
            expected = torch.stack([alone(model, found[row]) for row in chosen])
            torch.testing.assert_close(states, expected, atol=1e-10, rtol=0)
        kept = len(found[-1]) - 3
        if kept > 0:
            own = side_by_side.cache_of(-1, kept)
            rest = torch.from_numpy(found[-1][None, kept:])
            after = model.hidden_states(rest, own)[0, -1]
            torch.testing.assert_close(after, alone(model, found[-1]), atol=1e-10, rtol=0)


def test_many_questions_after_the_same_shots_take_few_passes():
    model, rng = tiny("none"), np.random.default_rng(0)
    shots = rng.integers(40, size=27)
    prompts = [np.concatenate([shots, [row], rng.integers(40, size=8)]) for row in range(30)]
    seen = passes_of(model)
    generate(model, prompts, max_new_tokens=4, batch_tokens=2000)
    assert seen == [(1, 27 + 30 * 9)] + [(1, 30)] * 3


@given(texts, st.integers(1, 40), st.integers(1, 3))
def test_a_cache_holds_as_many_successive_prompts_as_fit(prompts, limit, new):
    found = [np.array(prompt, dtype=np.int64) for prompt in prompts]
    order = sharing_order(found)
    parts = bundles(found, order, limit, new)
    assert [index for part in parts for index in part] == order

    def beside_the_first(part: list[int]) -> int:
        # A prompt that adds nothing passes its last token again.
        again = sum(
            reusable(found[one], found[two]) < common_prefix(found[one], found[two])
            for one, two in pairwise(part)
        )
        all_tokens = num_distinct_tokens(found, part) + again + new * len(part)
        return all_tokens - len(found[part[0]]) - new

    for number, part in enumerate(parts):
        assert beside_the_first(part) <= limit
        if number + 1 < len(parts):
            assert beside_the_first([*part, parts[number + 1][0]]) > limit


def needle_grid(lengths: list[int]) -> list[np.ndarray]:
    """One haystack with something else at five depths, at each length."""
    haystack = np.random.default_rng(0).integers(256, size=max(lengths))
    prompts = []
    for length in lengths:
        for depth in (0.2, 0.5, 0.7, 0.9, 0.95):
            place = int(depth * length)
            prompts.append(np.concatenate([haystack[:place], [256, 257], haystack[place:length]]))
    return prompts


@given(texts)
def test_no_order_processes_fewer_tokens_and_the_order_is_lexicographic(prompts):
    found = [np.array(prompt, dtype=np.int64) for prompt in prompts]
    order = sharing_order(found)
    assert [prompts[index] for index in order] == sorted(prompts)
    nodes = {tuple(prompt[:end]) for prompt in prompts for end in range(1, len(prompt) + 1)}
    assert num_distinct_tokens(found, order) == len(nodes)
    if len(prompts) <= 5:
        every = permutations(range(len(prompts)))
        assert min(num_distinct_tokens(found, other) for other in every) == len(nodes)


def test_what_prompts_share_is_processed_once():
    model, prompts = toy("none"), needle_grid([150, 200])
    seen = passes_of(model)
    generate(model, prompts, max_new_tokens=1, batch_tokens=1000)
    assert num_tokens(seen) == num_distinct_tokens(prompts, sharing_order(prompts))
    assert num_tokens(seen) < 2 / 3 * sum(map(len, prompts))


def test_equal_prompts_get_equal_answers_from_one_prefill():
    model, prompts = toy("none"), [np.arange(40)] * 5
    seen = passes_of(model)
    answers = generate(model, prompts, max_new_tokens=3, batch_tokens=1000)
    assert len({tuple(answer) for answer in answers}) == 1
    assert num_tokens(seen) == 40 + 2 + 4 * (1 + 2)


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
