"""Effective length: the rule on small tables, and its properties."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.statistics.effective_length import (
    EffectiveLength,
    Scores,
    Threshold,
    effective_length,
)

LENGTHS = (1024, 2048, 4096, 8192, 16384)


def scores_of(values: Sequence[float], clusters: Any = None, seeds: Any = None) -> Scores:
    return Scores(np.array(values, dtype=np.float64), clusters, seeds)


def answers(*right: int, of: int = 100, clusters: Any = None) -> dict[int, Scores]:
    values = ([1.0] * k + [0.0] * (of - k) for k in right)
    return {n: scores_of(one, clusters) for n, one in zip(LENGTHS, values, strict=False)}


tables = st.lists(
    st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=30), min_size=1, max_size=5
).map(lambda rows: dict(zip(LENGTHS, map(scores_of, rows), strict=False)))


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        # Clopper and Pearson: 92 of 100 right is at least 84.8 %, 93 at least 86.1 %; of five
        # lengths, at 99 %, 76 of 100 is at most 86.1 % and 75 at most 85.3 %.
        ((100, 99, 93, 75, 0), (4096, 4096, 4096)),
        ((100, 99, 92, 76, 0), (4096, 2048, 8192)),
        ((100, 99, 20, 99, 99), (2048, 2048, 2048)),
        ((10, 100, 100, 100, 100), (0, 0, 0)),
        ((80, 80, 80, 80, 80), (0, 0, 16384)),
    ],
)
def test_the_first_length_that_fails_ends_it(right, expected):
    found = effective_length(answers(*right), 0.856)
    assert (found.tokens, found.low, found.high, found.longest) == (*expected, 16384)


def test_losses_must_not_exceed_the_threshold():
    rng = np.random.default_rng(0)
    losses = {
        n: scores_of(rng.normal(mean, 0.1, size=50))
        for n, mean in zip(LENGTHS, (2, 2, 4), strict=False)
    }
    found = effective_length(losses, 3.0, higher_is_better=False)
    assert found == EffectiveLength(2048, 2048, 2048, 4096)
    mirrored = {n: scores_of(-one.values) for n, one in losses.items()}
    assert effective_length(mirrored, -3.0) == found


def test_prompts_on_one_document_are_less_sure_than_as_many_documents():
    documents = [index // 25 for index in range(100)]
    assert effective_length(answers(92, 92), 0.8).low == 2048
    found = effective_length(answers(92, 92, clusters=documents), 0.8)
    assert (found.tokens, found.low, found.high) == (2048, 0, 2048)
    assert effective_length(answers(92, 92, clusters=["the same"] * 100), 0.8).low == 0


def test_a_threshold_from_few_prompts_is_uncertain_except_at_their_own_length():
    """45 of 50 right is 90 %; 90 % of it is 81 %, which 41 of 50 reach."""
    base = scores_of([1.0] * 45 + [0.0] * 5)
    table = {1024: base, 2048: scores_of([1.0] * 41 + [0.0] * 9), 4096: base}
    found = effective_length(table, Threshold(base, 1024, 0.9))
    assert (found.tokens, found.low, found.high) == (4096, 1024, 4096)
    assert effective_length({1024: base}, Threshold(base, 512, 0.9)).low == 0
    known = effective_length({1024: base}, 0.78)
    estimated = effective_length({1024: base}, Threshold(base, 512, 1.0, 0.78 - 0.9))
    assert (known.low, estimated.low) == (1024, 0)


@given(tables, st.floats(0.05, 0.95), st.floats(0.0, 0.5), st.randoms())
def test_a_higher_threshold_and_the_order_of_lengths(table, threshold, more, random):
    found = effective_length(table, threshold)
    assert found.low <= found.tokens <= found.high <= found.longest
    harder = effective_length(table, min(1.0, threshold + more))
    assert (harder.low, harder.tokens, harder.high) <= (found.low, found.tokens, found.high)
    assert harder.tokens <= found.tokens
    assert harder.high <= found.high
    shuffled = dict(random.sample(list(table.items()), len(table)))
    assert effective_length(shuffled, threshold) == found


def test_training_seeds_that_vary_more_than_prompts_widen_the_bounds():
    rng, num_studies, wrong = np.random.default_rng(0), 300, {"seeds": 0, "none": 0}
    labels = np.repeat(np.arange(3), 30).tolist()
    for _ in range(num_studies):
        runs = rng.normal(size=3) * 3 / np.sqrt(30)
        # Just below the threshold at 2,048 tokens, far above it at 1,024.
        scores = {
            length: np.concatenate([mean + run + rng.normal(size=30) for run in runs])
            for length, mean in zip(LENGTHS, (5.0, -1e-9), strict=False)
        }
        for kind, seeds in (("seeds", labels), ("none", None)):
            table = {length: scores_of(values, seeds=seeds) for length, values in scores.items()}
            wrong[kind] += effective_length(table, 0.0).low == 2048
    assert wrong["seeds"] <= 0.05 * num_studies
    assert wrong["none"] > 0.15 * num_studies
