"""The bootstrap interval against distributions that are known exactly."""

import pytest
from scipy import stats

from lce_core.statistics.estimates import bootstrap_mean


@pytest.mark.parametrize(("right", "number"), [(50, 100), (30, 100), (120, 150)])
def test_the_interval_of_zeros_and_ones_is_the_binomials_central_95_per_cent(right, number):
    estimate = bootstrap_mean([1.0] * right + [0.0] * (number - right))
    low, high = stats.binom.ppf([0.025, 0.975], number, right / number)
    # One count is three standard errors of a quantile of 2,000 draws.
    assert estimate.low == pytest.approx(low / number, abs=1 / number)
    assert estimate.high == pytest.approx(high / number, abs=1 / number)


def test_weights_count_in_clusters_too():
    values, weights, clusters = [1.0, 2.0, 3.0, 10.0], [1, 2, 3, 4], ["a", "a", "b", "b"]
    estimate = bootstrap_mean(values, weights=weights, clusters=clusters)
    assert estimate.value == pytest.approx((1 + 4 + 9 + 40) / 10, rel=1e-12)
    # Both draws are of one cluster in half of the cases: its own mean.
    assert estimate.low == pytest.approx((1 + 4) / 3, rel=1e-12)
    assert estimate.high == pytest.approx((9 + 40) / 7, rel=1e-12)
