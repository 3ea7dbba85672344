"""Means over seeds: a worked analysis of variance, and single parts against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lce_core.statistics.seeds import SeedMean, mean_over_seeds

numbers = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))
tables = st.integers(2, 5).flatmap(lambda n: st.lists(st.tuples(*n * [numbers]), min_size=2))


def bounds(found: SeedMean) -> tuple[float, float]:
    return found.low, found.high


@given(tables)
def test_shared_prompts_never_make_the_interval_narrower_than_the_seeds_do(table):
    crossed = mean_over_seeds(table, same_prompts=True)
    nested = mean_over_seeds(table, same_prompts=False)
    assert crossed.low <= nested.low + 1e-6
    assert crossed.value == nested.value


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


def test_many_seeds_that_do_not_differ_leave_it_to_the_prompts():
    prompts = np.random.default_rng(1).normal(size=30)
    found = mean_over_seeds([prompts] * 4, same_prompts=True)
    theirs = stats.ttest_1samp(prompts, 0).confidence_interval()
    assert bounds(found) == pytest.approx(tuple(theirs))
    assert found.seed_sd == 0
    assert found.document_sd == pytest.approx(prompts.std(ddof=1))


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
