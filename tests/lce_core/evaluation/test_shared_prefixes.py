"""Prompts that begin alike: the order against brute force over all orders, answers against none."""

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lce_core.evaluation.decoding import generate
from lce_core.evaluation.shared_prefixes import num_distinct_tokens, sharing_order
from tests.support.toy_models import num_tokens, passes_of, toy

texts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=6)


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


def test_frequencies_that_follow_the_length_are_not_shared_across_lengths():
    model = toy("dynamic_yarn")
    assert model.request_key(200) != model.request_key(300)
    assert toy("yarn").request_key(200) == toy("yarn").request_key(300)
    prompts = needle_grid([150, 200])
    seen = passes_of(model)
    generate(model, prompts, max_new_tokens=1, batch_tokens=1000)
    by_length = [needle_grid([150]), [*map(np.asarray, prompts[5:])]]
    assert num_tokens(seen) == sum(
        num_distinct_tokens(some, sharing_order(some)) for some in by_length
    )
