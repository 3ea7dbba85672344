"""Rank agreement: by counting pairs, by hand, and its error rate by simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.statistics.rank_agreement import RankAgreement, perplexity_agreement, rank_agreement
from tests.support.oracles.error_rates import at_most

numbers = st.integers(-20, 20).map(float)
tables = st.lists(st.tuples(numbers, numbers), min_size=2, max_size=14)


def of(rows) -> RankAgreement:
    return rank_agreement(*np.array(rows).T)


def signs(values) -> list[int]:
    return [int(np.sign(b - a)) for a, b in itertools.combinations(values, 2)]


@given(tables)
def test_kendall_counts_pairs_and_spearman_correlates_ranks(rows):
    first, second = zip(*rows, strict=True)
    found, ours, theirs = of(rows), signs(first), signs(second)
    if not any(ours) or not any(theirs):
        assert found.kendall.value is found.spearman.value is found.p_value is None
        return
    both = sum(a * b for a, b in zip(ours, theirs, strict=True))
    untied = math.sqrt(sum(map(abs, ours)) * sum(map(abs, theirs)))
    assert found.kendall.value == pytest.approx(both / untied, abs=1e-12)
    below = [[sum(o < v for o in one) + sum(o == v for o in one) / 2 for v in one]
             for one in (first, second)]  # fmt: skip
    assert found.spearman.value == pytest.approx(np.corrcoef(below)[0, 1], abs=1e-12)


def test_five_methods_by_hand() -> None:
    # Orders 1 2 3 4 5 and 2 1 4 3 5: squares of rank differences 4, 2 of 10 pairs reversed.
    found = rank_agreement(np.arange(5), np.array([20, 10, 40, 30, 50]))
    assert (found.spearman.value, found.kendall.value) == pytest.approx((0.8, 0.6))
    # z = 1.0986 and 0.6931, variances 1.32 / 2 and 0.437 / 1.
    half = 1.959964 * math.sqrt(0.66)
    expected = (math.tanh(1.098612 - half), math.tanh(1.098612 + half))
    assert (found.spearman.low, found.spearman.high) == pytest.approx(expected, abs=1e-6)
    half = 1.959964 * math.sqrt(0.437)
    expected = (math.tanh(0.693147 - half), math.tanh(0.693147 + half))
    assert (found.kendall.low, found.kendall.high) == pytest.approx(expected, abs=1e-6)
    # Of the 120 orders, 1, 4 and 9 have 0, 1 and 2 reversed pairs.
    assert found.p_value == pytest.approx(2 * 14 / 120)


def test_the_same_order_of_few_methods_is_not_sure():
    found = rank_agreement(np.arange(6), np.arange(6))
    assert (found.kendall.value, found.kendall.high) == (1.0, 1.0)
    assert 0 < found.kendall.low < 0.8
    assert found.p_value == pytest.approx(2 / 720)
    four = rank_agreement(np.arange(4), np.arange(4))
    assert (four.kendall.value, four.kendall.low, four.spearman.high) == (1.0, None, None)


def test_lower_perplexity_agrees_with_higher_scores_and_approximate_methods_can_hide_it():
    perplexity = [5.0, 6.0, 7.0, 8.0, 9.0, 4.0, 4.5]
    downstream = [0.9, 0.8, 0.7, 0.6, 0.5, 0.1, 0.2]
    exact = [True] * 5 + [False] * 2
    of_all, of_exact = perplexity_agreement(perplexity, downstream, exact)
    assert of_exact == rank_agreement(-np.array(perplexity[:5]), np.array(downstream[:5]))
    assert of_exact.kendall.value == 1.0
    assert of_all.num_methods == 7
    # 10 pairs of exact methods agree, 10 with an approximate one and the one of these do not.
    assert of_all.kendall.value == pytest.approx((10 - 11) / 21)
    none = perplexity_agreement(perplexity, downstream, [False] * 7)[1]
    assert (none.num_methods, none.kendall.value) == (0, None)


def test_copies_within_a_family_add_no_evidence():
    first, second = np.arange(6.0), np.array([0.0, 2, 1, 3, 5, 4])
    one = rank_agreement(first, second)
    # Each method four times, in nearly the same order.
    nearly = np.tile(np.arange(4) * 1e-3, 6)
    copies = (np.repeat(first, 4) + nearly, np.repeat(second, 4) - nearly)
    families = np.repeat(np.arange(6), 4)
    assert rank_agreement(*copies).p_value < 1e-3
    found = rank_agreement(*copies, families)
    assert 0.5 * one.p_value < found.p_value < 2 * one.p_value
    assert found.kendall.low < rank_agreement(*copies).kendall.low
    three = rank_agreement(*copies, families // 2)
    assert (three.kendall.low, three.p_value) == (None, None), "too few families"


@pytest.mark.slow
def test_unrelated_scores_of_alike_methods_seem_related_in_one_of_twenty_studies():
    sizes = (2, 6, 8, 6, 5)
    rng, runs, small = np.random.default_rng(1), 1000, 0
    families = np.repeat(np.arange(len(sizes)), sizes)
    for _ in range(runs):
        alike, own = rng.normal(size=(2, len(sizes))), rng.normal(size=(2, families.size))
        first, second = math.sqrt(0.5) * (alike[:, families] + own)
        small += rank_agreement(first, second, families).p_value <= 0.05
    at_most(small, runs, 0.05)
