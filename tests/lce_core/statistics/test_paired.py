"""Paired differences: signs and labels by hypothesis, errors of both kinds by simulation.

The other side of a comparison is scipy's own bootstrap, t interval and binomial distribution, or a
count of all outcomes; simulated rates are bounded so that a right method fails once in 10,000.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lce_core.statistics import paired
from lce_core.statistics._checks import cluster_numbers, finite
from lce_core.statistics.estimates import Estimate
from lce_core.statistics.pair_tests import exact_mcnemar, wilcoxon
from lce_core.statistics.paired import intervals
from tests.support.oracles.error_rates import at_most, between

scores = st.floats(-100, 100).map(lambda value: round(value, 3))
pairs = st.lists(st.tuples(scores, scores, st.integers(0, 8)), min_size=1, max_size=30)


@dataclass(frozen=True)
class PairedDifference:
    difference: Estimate
    p_value: float
    test: str
    num_clusters: int
    num_first_better: int
    num_second_better: int


def paired_difference(first, second, clusters=None, *, resamples=10_000) -> PairedDifference:
    ours, theirs = finite("first", first), finite("second", second)
    numbers = cluster_numbers("clusters", clusters, ours)
    gaps = ours - theirs
    test, p_value, wins, losses = paired.compared(ours, theirs, numbers, float(gaps.mean()))
    found = intervals(gaps[:, None], numbers, resamples=resamples)
    low, high = (None if np.isnan(one[0]) else float(one[0]) for one in (found.low, found.high))
    estimate = Estimate(float(gaps.mean()), low, high, gaps.size)
    return PairedDifference(estimate, p_value, test, int(numbers.max()) + 1, wins, losses)


def compared(rows: list[tuple[float, float, int]], **options) -> PairedDifference:
    first, second, clusters = zip(*rows, strict=True)
    return paired_difference(first, second, clusters, resamples=400, **options)


@settings(max_examples=50)
@given(pairs, st.permutations(range(9)), st.randoms())
def test_names_of_clusters_and_order_of_prompts_mean_nothing(rows, names, random) -> None:
    renamed = [(first, second, f"document {names[cluster]}") for first, second, cluster in rows]
    one, other = compared(rows), compared(random.sample(renamed, len(renamed)))
    assert one.difference.value == pytest.approx(other.difference.value, abs=1e-9)
    if one.difference.low is not None:
        bounds = (other.difference.low, other.difference.high)
        assert (one.difference.low, one.difference.high) == pytest.approx(bounds, abs=1e-9)
    assert one.p_value == pytest.approx(other.p_value, abs=1e-12)
    counts = (one.test, one.num_clusters, one.num_first_better, one.num_second_better)
    assert counts == (
        other.test, other.num_clusters, other.num_first_better, other.num_second_better,
    )  # fmt: skip


@settings(max_examples=50)
@given(pairs)
def test_swapping_the_methods_mirrors_everything(rows) -> None:
    one = compared(rows)
    other = compared([(second, first, cluster) for first, second, cluster in rows])
    assert one.difference.value == pytest.approx(-other.difference.value, abs=1e-9)
    if one.difference.low is not None:
        mirrored = (-other.difference.high, -other.difference.low)
        assert (one.difference.low, one.difference.high) == pytest.approx(mirrored, abs=1e-9)
        assert one.difference.low <= one.difference.value <= one.difference.high
    assert one.p_value == pytest.approx(other.p_value, abs=1e-12)
    assert one.num_first_better == other.num_second_better


def test_repeating_every_prompt_within_its_cluster_adds_no_evidence() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(2, 12))
    once = paired_difference(first, second, list(range(12)))
    often = paired_difference(
        np.repeat(first, 5), np.repeat(second, 5), np.repeat(np.arange(12), 5).tolist()
    )
    assert often.p_value == once.p_value
    assert (often.difference.low, often.difference.high) == pytest.approx(
        (once.difference.low, once.difference.high), rel=1e-9
    )


def test_the_interval_of_many_clusters_is_that_of_scipy() -> None:
    rng = np.random.default_rng(4)
    gaps = rng.normal(0.3, 1.0, size=400)
    ours = paired_difference(gaps, np.zeros(400), resamples=20_000).difference
    theirs = stats.bootstrap((gaps,), np.mean, method="percentile", n_resamples=20_000, rng=rng)
    spread = gaps.std() / 20
    interval = theirs.confidence_interval
    assert ours.low == pytest.approx(interval.low, abs=0.1 * spread)
    assert ours.high == pytest.approx(interval.high, abs=0.1 * spread)


def test_the_interval_of_few_clusters_is_about_that_of_student() -> None:
    # Normal quantiles as data: symmetric, and of the skew that no sample adds.
    gaps = stats.norm.ppf((np.arange(12) + 0.5) / 12)
    ours = paired_difference(gaps, np.zeros(12), resamples=40_000).difference
    theirs = stats.t.interval(0.95, 11, loc=gaps.mean(), scale=gaps.std(ddof=1) / math.sqrt(12))
    assert (ours.low, ours.high) == pytest.approx(theirs, rel=0.04)


def test_five_clusters_have_no_interval() -> None:
    found = paired_difference([1.0, 2.0, 3.0, 4.0, 5.0], [0.0] * 5)
    assert (found.difference.value, found.difference.low, found.difference.high) == (3, None, None)
    assert found.p_value == 2 / 2**5


def test_binary_scores_of_single_prompts_are_tested_by_mcnemar_and_others_by_wilcoxon() -> None:
    ours, theirs = [1, 1, 1, 0, 1, 1], [0, 0, 0, 0, 1, 0]
    found = paired_difference(ours, theirs)
    assert (found.test, found.p_value) == ("mcnemar", exact_mcnemar(4, 0))
    assert (found.num_first_better, found.num_second_better) == (4, 0)
    assert paired_difference(ours, theirs, [0, 0, 1, 2, 3, 4]).test == "wilcoxon"
    assert paired_difference([0.5, *ours[1:]], theirs).test == "wilcoxon"


def test_sums_that_differ_by_rounding_are_equal() -> None:
    thirds = paired_difference([1 / 3, 0.1, 0.2], [2 / 3, 0.3, 0.0], ["a", "b", "b"])
    tenths = paired_difference([0.1, 0.2, 0.0], [0.0, 0.0, 0.3], ["a", "a", "a"])
    assert (thirds.num_first_better, thirds.num_second_better) == (0, 1)
    assert (tenths.num_first_better, tenths.num_second_better, tenths.p_value) == (0, 0, 1.0)


# (25 prompts that one alone answers right, 9 that the other does): all outcomes are counted.
@pytest.mark.parametrize(("first", "second"), [(25, 9), (9, 25), (3, 0), (7, 7), (0, 0), (1, 12)])
def test_mcnemar_is_the_share_of_outcomes_at_least_as_uneven(first: int, second: int) -> None:
    total, gap = first + second, abs(first - second)
    uneven = sum(math.comb(total, k) for k in range(total + 1) if abs(2 * k - total) >= gap)
    assert exact_mcnemar(first, second) == pytest.approx(uneven / 2**total, rel=1e-12)


@settings(max_examples=25)
@given(st.lists(st.integers(-6, 6), min_size=1, max_size=9))
def test_wilcoxon_is_the_share_of_signs_at_least_as_uneven(gaps: list[int]) -> None:
    nonzero = [gap for gap in gaps if gap]
    ranks = stats.rankdata(np.abs(nonzero)) if nonzero else np.zeros(0)
    uneven = abs(float(np.sign(nonzero) @ ranks)) if nonzero else 0.0
    signs = list(itertools.product((-1, 1), repeat=len(nonzero)))
    share = sum(abs(float(np.dot(one, ranks))) >= uneven - 1e-9 for one in signs) / len(signs)
    assert wilcoxon(gaps)[0] == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize("number", [14, 50, 51, 200])
def test_wilcoxon_of_many_differences_is_scipys(number: int) -> None:
    rng = np.random.default_rng(number)
    gaps = rng.normal(0.3, 1.0, size=number)
    method = "exact" if number <= 50 else "asymptotic"
    assert wilcoxon(gaps)[0] == pytest.approx(stats.wilcoxon(gaps, method=method).pvalue, rel=1e-9)
    if number > 100:  # of 51 fewer than 51 differ
        tied = rng.integers(-4, 7, size=number)
        assert wilcoxon(tied)[0] == pytest.approx(
            stats.wilcoxon(tied, method="asymptotic").pvalue, rel=1e-9
        )


@settings(max_examples=20)
@given(pairs, st.integers(0, 3))
def test_a_column_among_others_has_the_interval_that_it_has_alone(rows, place: int) -> None:
    first, second, clusters = (np.array(one) for one in zip(*rows, strict=True))
    numbers = np.unique(clusters, return_inverse=True)[1]
    gaps = np.stack([first - second, second, first, np.zeros(len(rows))], axis=1)
    among = intervals(gaps, numbers, resamples=400)
    alone = intervals(gaps[:, [place]], numbers, resamples=400)
    for name in ("low", "high", "error"):
        one, other = getattr(among, name)[place], getattr(alone, name)[0]
        assert one == pytest.approx(other, abs=1e-9, nan_ok=True)


def simulated(rng: np.random.Generator, num_clusters: int, effect: float) -> PairedDifference:
    """Clusters of 1 to 7 prompts, which share half of their variance."""
    sizes = rng.integers(1, 8, size=num_clusters)
    clusters = np.repeat(np.arange(num_clusters), sizes)
    prompts = rng.normal(size=clusters.size)
    gaps = effect + rng.normal(size=num_clusters)[clusters] + rng.normal(size=clusters.size)
    return paired_difference(prompts + gaps, prompts, clusters.tolist(), resamples=2000)


@pytest.mark.slow
@pytest.mark.parametrize("num_clusters", [10, 40])
def test_intervals_cover_and_p_values_are_rarely_small_where_there_is_no_difference(
    num_clusters: int,
) -> None:
    rng, runs = np.random.default_rng(num_clusters), 1500
    found = [simulated(rng, num_clusters, 0.4) for _ in range(runs)]
    covered = sum(one.difference.low <= 0.4 <= one.difference.high for one in found)
    # Clusters of unequal size and a linear estimate of spread: about 1 % less than nominal.
    between(covered, runs, 0.935, 0.965)
    null = [simulated(rng, num_clusters, 0.0) for _ in range(runs)]
    at_most(sum(one.p_value <= 0.05 for one in null), runs, 0.05)
    assert sum(one.p_value <= 0.05 for one in null) > 0.02 * runs


@pytest.mark.parametrize(
    ("first", "second", "clusters"),
    [([1.0], [float("nan")], None), ([], [], None), ([1, 2], [1, 2], ["a"])],
)
def test_scores_that_are_no_pairs_are_refused(first, second, clusters) -> None:
    with pytest.raises(AssertionError):
        paired_difference(first, second, clusters)
