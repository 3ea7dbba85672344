"""Differences of two methods: tests and intervals agree, and match scipy's; Holm's p-values against
Bonferroni tests of every subset; levels of looks against the spending function written out."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from lce_core.statistics.contrasts import Contrast, adjust, skewness
from lce_core.statistics.power import holm, look_levels
from tests.support.oracles.error_rates import between

ALPHAS = st.sampled_from([0.5, 0.1, 0.05, 1e-3, 1e-5])


@st.composite
def contrasts(draw: st.DrawFn) -> Contrast:
    """A contrast over clusters, training seeds, both, or right and wrong answers."""
    value, number = draw(st.floats(-3, 3)), draw(st.integers(18, 60))
    kind = draw(st.sampled_from(["clusters", "seeds", "both", "answers"]))
    error, seed_error = draw(st.floats(0.1, 2)), draw(st.floats(0.1, 2))
    freedom = draw(st.sampled_from([2.0, 3.7, 12.0, 52.0]))
    if kind == "clusters":
        return Contrast(value, number, error, draw(st.floats(-2, 2)))
    if kind == "answers":
        wins = draw(st.integers(0, number))
        losses = draw(st.integers(0, number - wins))
        return Contrast((wins - losses) / number, number, discordant=(wins, losses))
    added = error if kind == "both" else 0.0
    return Contrast(value, number, added, 0.0, seed_error, freedom)


@given(contrasts(), ALPHAS)
def test_an_interval_ends_where_the_p_value_is_alpha(one, alpha):
    low, high = one.interval(alpha)
    assert low <= one.value <= high
    assert (low > 0 or high < 0) == (one.p_value() <= alpha)
    if one.discordant is None:
        assert min(one.p_value(low), one.p_value(high)) == pytest.approx(alpha, rel=1e-5)
        assert max(one.p_value(low - 1e-3), one.p_value(high + 1e-3)) < alpha


@pytest.mark.parametrize("number", [6, 20, 120])
def test_symmetric_differences_get_students_t(number):
    gaps = stats.norm.ppf((np.arange(number) + 0.5) / number) + 0.3
    one = Contrast(gaps.mean(), number, stats.sem(gaps), skewness(gaps))
    assert skewness(np.exp(gaps)) == pytest.approx(stats.skew(np.exp(gaps), bias=False))
    expected = stats.ttest_1samp(gaps, 0.0)
    assert one.p_value() == pytest.approx(expected.pvalue, rel=1e-6)
    bounds = expected.confidence_interval()
    assert one.interval() == pytest.approx((bounds.low, bounds.high), rel=1e-6)


def test_fewer_than_six_documents_have_no_interval_and_equal_gains_the_sign_tests_p_value():
    assert Contrast(1.0, 5, 0.01).interval() is None
    assert Contrast(1.0, 6, 0.01).interval() is not None
    assert Contrast(1.0, 6).p_value() == 2 / 64
    assert Contrast(1.0, 5, 1e-6).p_value() == 2 / 32
    assert Contrast(1.0, 6, 1e-6).p_value() < 1e-6


def test_right_and_wrong_answers_get_mcnemars_test_and_a_width_at_the_ceiling():
    one = Contrast(0.08, 200, discordant=(25, 9))
    uneven = sum(math.comb(34, k) for k in range(35) if abs(2 * k - 34) >= 16)
    assert one.p_value() == pytest.approx(max(uneven / 2**34, 0.0), rel=0.2)
    assert one.p_value() >= uneven / 2**34
    low, high = Contrast(0.0, 40, discordant=(0, 0)).interval()
    assert low == -high < -0.03


def test_seeds_and_prompts_each_have_their_own_quantile():
    one = Contrast(1.0, 20, 0.3, 0.0, 0.2, 4)
    half = math.hypot(stats.t.ppf(0.975, 4) * 0.2, stats.t.ppf(0.975, 19) * 0.3)
    assert one.interval() == pytest.approx((1 - half, 1 + half))
    assert Contrast(half, 20, 0.3, 0.0, 0.2, 4).p_value() == pytest.approx(0.05)


@given(st.lists(contrasts(), min_size=1, max_size=12))
def test_an_adjusted_interval_includes_zero_unless_its_p_value_is_small(family):
    assume(all(abs(one.p_value() - 0.05) > 1e-6 for one in family))
    found = adjust(family)
    for one, adjusted in zip(family, found, strict=True):
        assert one.p_value() <= adjusted.p_adjusted
        if adjusted.low is not None:
            assert adjusted.low <= one.value <= adjusted.high
            assert (adjusted.low < 0 < adjusted.high) <= (adjusted.p_adjusted > 0.05)
            assert (adjusted.p_adjusted > 0.05) <= (adjusted.low <= 0 <= adjusted.high)


@pytest.mark.slow
@pytest.mark.parametrize("number", [6, 20, 120])
def test_intervals_cover_lognormal_means(number):
    rng, runs, covered = np.random.default_rng(number), 3000, 0
    for _ in range(runs):
        gaps = np.exp(0.5 * rng.normal(size=number)) - math.exp(0.125)
        low, high = Contrast(gaps.mean(), number, stats.sem(gaps), skewness(gaps)).interval()
        covered += low <= 0 <= high
    between(covered, runs, 0.94, 0.97)


looks = st.lists(st.integers(2, 100), min_size=1, max_size=8, unique=True).map(sorted)


@given(looks)
def test_levels_add_up_to_what_may_be_spent(after):
    levels = look_levels(after)
    fraction = np.array(after) / after[-1]
    # Lan and DeMets 1983, the spending function that resembles O'Brien and Fleming's boundaries.
    spent = 2 - 2 * stats.norm.cdf(stats.norm.ppf(0.975) / np.sqrt(fraction))
    assert np.cumsum(levels) == pytest.approx(spent, abs=1e-12)
    assert sum(levels) == pytest.approx(0.05)


def test_a_look_raises_p_values_and_widens_intervals_by_its_level():
    first, second = Contrast(1.2, 20, 0.3), Contrast(0.5, 20, 0.3)
    found = adjust([first, second], levels=[0.01, 0.04], num_untested=1)
    assert found[0].p_adjusted == pytest.approx(3 * first.p_value() * 5)
    assert found[1].p_adjusted == pytest.approx(min(1.0, 2 * second.p_value() * 0.05 / 0.04))
    # Three comparisons: two are undecided after the first is decided.
    assert found[0].p_adjusted <= 0.05 < found[1].p_adjusted
    assert [one.alpha for one in found] == pytest.approx([0.01 / 3, 0.04 / 2])


families = st.lists(st.floats(0, 1), min_size=1, max_size=7)


@given(families)
def test_holm_closes_bonferroni(raw: list[float]) -> None:
    # Marcus, Peritz and Gabriel 1976: a comparison is a finding if every subset with it is one.
    subsets = [
        chosen
        for size in range(1, len(raw) + 1)
        for chosen in itertools.combinations(range(len(raw)), size)
    ]
    closed = [
        max(min(1.0, len(s) * min(raw[k] for k in s)) for s in subsets if index in s)
        for index in range(len(raw))
    ]
    assert holm(raw) == pytest.approx(closed, rel=1e-12)
