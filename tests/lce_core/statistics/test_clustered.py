"""Intervals over documents: against scipy where documents are prompts, and coverage; means over
seeds: a worked analysis of variance, and single parts against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lce_core.statistics.clustered import (
    ClusteredEstimate,
    SeedMean,
    clustered_mean,
    mean_over_seeds,
)
from tests.support.oracles.error_rates import at_least, between

numbers = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))
answers = st.lists(st.tuples(numbers, st.integers(0, 6)), min_size=1, max_size=30)
shares = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.integers(0, 6)), min_size=1)


def bounds(found: ClusteredEstimate | SeedMean) -> tuple[float, float]:
    return found.low, found.high


def mean_of(rows, **options) -> ClusteredEstimate:
    values, clusters = zip(*rows, strict=True)
    return clustered_mean(values, clusters, **options)


@given(st.one_of(answers, shares), st.permutations(range(7)), st.randoms())
def test_names_of_documents_and_order_mean_nothing(rows, names, random):
    one = mean_of(rows)
    other = mean_of(random.sample([(v, f"d{names[c]}") for v, c in rows], len(rows)))
    assert (one.num_samples, one.num_clusters) == (other.num_samples, other.num_clusters)
    assert one.value == pytest.approx(other.value, abs=1e-9)
    if one.low is None:
        assert len({c for _, c in rows}) == 1
    else:
        assert bounds(one) == pytest.approx(bounds(other), abs=1e-6)
        assert one.low <= one.value <= one.high


def test_single_prompts_have_the_interval_of_student_or_of_clopper_and_pearson():
    data = np.random.default_rng(0).normal(size=15)
    theirs = stats.ttest_1samp(data, 0).confidence_interval(0.9)
    assert bounds(clustered_mean(data, level=0.9)) == pytest.approx(tuple(theirs), rel=1e-12)
    exact = stats.binomtest(40, 40).proportion_ci(0.95, "exact")
    assert bounds(clustered_mean([1.0] * 40)) == pytest.approx(tuple(exact), rel=1e-12)
    # n - 1 independent answers have the unbiased variance of n.
    exact = stats.binomtest(30, 39).proportion_ci(0.95, "exact")
    found = bounds(clustered_mean([1.0] * 300 + [0.0] * 90))
    narrower = stats.binomtest(300, 390).proportion_ci(0.95, "exact")
    assert found == pytest.approx(tuple(narrower), abs=3e-4)
    assert found[0] > exact[0]


def test_documents_of_equal_size_have_the_interval_of_their_means():
    data = np.random.default_rng(1).normal(size=(12, 5))
    theirs = stats.ttest_1samp(data.mean(axis=1), 0).confidence_interval()
    ours = clustered_mean(data.ravel(), np.repeat(np.arange(12), 5).tolist())
    assert bounds(ours) == pytest.approx(tuple(theirs), rel=1e-9)


def test_documents_of_unequal_size_have_the_robust_error_of_a_regression_on_a_constant():
    values, clusters = np.array([1.0, 3.0, 2.0, 7.0, 8.0, 5.0]), np.array([0, 0, 1, 2, 2, 2])
    # (X'X)^-1 X' u_g u_g' X (X'X)^-1 with X a column of ones, times G / (G - 1): CR1 with N - 1.
    design, residuals = np.ones((6, 1)), values - values.mean()
    bread = np.linalg.inv(design.T @ design)
    scores = [design[clusters == g].T @ residuals[clusters == g] for g in range(3)]
    meat = sum(np.outer(score, score) for score in scores)
    error = math.sqrt(1.5 * (bread @ meat @ bread)[0, 0])
    half = stats.t.ppf(0.975, 2) * error
    found = clustered_mean(values, clusters.tolist())
    assert bounds(found) == pytest.approx((values.mean() - half, values.mean() + half))


def test_all_right_is_as_sure_as_there_are_documents():
    found = clustered_mean([1.0] * 40, [index // 10 for index in range(40)])
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.025 ** (1 / 4))


@pytest.mark.slow
@pytest.mark.parametrize("num_documents", [10, 40])
def test_intervals_over_documents_contain_the_mean(num_documents):
    rng, runs = np.random.default_rng(num_documents), 2000
    numbers_hold = shares_hold = 0
    for _ in range(runs):
        sizes = rng.integers(2, 7, size=num_documents)
        documents = np.repeat(np.arange(num_documents), sizes)
        values = rng.normal(size=num_documents)[documents] + rng.normal(size=documents.size)
        low, high = bounds(clustered_mean(values, documents.tolist()))
        numbers_hold += low <= 0 <= high
        # Beta(4, 1) documents: answers are alike, four of five are right.
        right = rng.random(documents.size) < rng.beta(4, 1, size=num_documents)[documents]
        low, high = bounds(clustered_mean(right.astype(float), documents.tolist()))
        shares_hold += low <= 0.8 <= high
    between(numbers_hold, runs, 0.935, 0.96)
    at_least(shares_hold, runs, 0.945)


def test_an_analysis_of_variance_by_hand() -> None:
    # Seeds' means 2, 4, 6; prompts' means 3, 5; the rest 0: squares of 8, 6 and 0.
    found = mean_over_seeds([[1.0, 3.0], [3.0, 5.0], [5.0, 7.0]], same_prompts=True)
    seeds, prompts = 4.302653**2 * 8 / 6, 12.706205**2 * 6 / 6
    half = math.sqrt(seeds + prompts)
    assert bounds(found) == pytest.approx((4 - half, 4 + half), rel=1e-6)
    assert (found.seed_sd, found.document_sd) == pytest.approx((2.0, math.sqrt(2)))
    assert (found.num_samples, found.num_seeds) == (6, 3)


def test_prompts_of_their_own_leave_the_interval_to_the_means_of_the_seeds():
    rng = np.random.default_rng(0)
    scores = [rng.normal(size=size) for size in (10, 20, 30, 40)]
    theirs = stats.ttest_1samp([one.mean() for one in scores], 0).confidence_interval()
    assert bounds(mean_over_seeds(scores, same_prompts=False)) == pytest.approx(tuple(theirs))


@pytest.mark.parametrize("same_prompts", [True, False])
def test_one_seed_says_nothing_about_others(same_prompts):
    found = mean_over_seeds([[1.0, 2.0, 3.0]], same_prompts=same_prompts)
    assert (found.value, found.low, found.high, found.seed_sd) == (2.0, None, None, None)
    assert found.document_sd == 1.0


def test_the_spread_of_seeds_is_estimated_without_that_of_their_prompts():
    rng = np.random.default_rng(2)
    of_seeds = 0.5 * rng.normal(size=(400, 1))
    for prompts, same_prompts in ((rng.normal(size=(400, 6)), False), (rng.normal(size=6), True)):
        table = of_seeds + prompts + rng.normal(size=(400, 6)) * (0.5 if same_prompts else 0)
        found = mean_over_seeds(table, same_prompts=same_prompts)
        assert found.seed_sd == pytest.approx(of_seeds.std(), rel=0.15)
