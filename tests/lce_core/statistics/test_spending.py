"""Levels of looks against the spending function written out, and the error that they keep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lce_core.statistics.contrasts import Contrast, adjust
from lce_core.statistics.significance import look_levels

looks = st.lists(st.integers(2, 100), min_size=1, max_size=8, unique=True).map(sorted)


@given(looks)
def test_levels_add_up_to_what_may_be_spent(after):
    levels = look_levels(after)
    fraction = np.array(after) / after[-1]
    # Lan and DeMets 1983, the spending function that resembles O'Brien and Fleming's boundaries.
    spent = 2 - 2 * stats.norm.cdf(stats.norm.ppf(0.975) / np.sqrt(fraction))
    assert np.cumsum(levels) == pytest.approx(spent, abs=1e-12)
    assert sum(levels) == pytest.approx(0.05)


@pytest.mark.parametrize("after", [[2, 4, 6], [3, 6], [1, 2, 3, 4, 5, 6]])
def test_true_nulls_are_claimed_at_some_look_in_at_most_5_percent(after):
    rng, num_studies, family = np.random.default_rng(0), 20_000, 3
    levels = look_levels(after)
    sums = np.cumsum(rng.normal(size=(num_studies, family, after[-1])), axis=2)
    claimed, naive = np.zeros((2, num_studies), dtype=bool)
    for number, level in zip(after, levels, strict=True):
        p_values = 2 * stats.norm.sf(np.abs(sums[:, :, number - 1]) / np.sqrt(number))
        # Holm claims something if and only if Bonferroni does.
        claimed |= (p_values * 0.05 / level * family <= 0.05).any(axis=1)
        naive |= (p_values * family <= 0.05).any(axis=1)
    assert claimed.mean() < 0.05
    assert naive.mean() > 0.075


def test_a_look_raises_p_values_and_widens_intervals_by_its_level():
    first, second = Contrast(1.2, 20, 0.3), Contrast(0.5, 20, 0.3)
    found = adjust([first, second], levels=[0.01, 0.04], num_untested=1)
    assert found[0].p_adjusted == pytest.approx(3 * first.p_value() * 5)
    assert found[1].p_adjusted == pytest.approx(min(1.0, 2 * second.p_value() * 0.05 / 0.04))
    # Three comparisons: two are undecided after the first is decided.
    assert found[0].p_adjusted <= 0.05 < found[1].p_adjusted
    assert [one.alpha for one in found] == pytest.approx([0.01 / 3, 0.04 / 2])
