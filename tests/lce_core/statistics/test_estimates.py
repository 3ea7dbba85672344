"""Bootstrap and Wilson intervals: properties, printed values, and values recorded by version."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lce_core.statistics.estimates import INTERVALS, bootstrap_mean, mean_estimate, wilson

samples = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40)


@given(samples, st.randoms())
def test_the_bootstrap_interval_contains_the_mean_in_any_order(values, random):
    clusters = [index % 3 for index in range(len(values))]
    order = random.sample(range(len(values)), len(values))
    shuffled = [values[index] for index in order]
    estimate = bootstrap_mean(values)
    assert estimate.value == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
    assert estimate.low <= estimate.value <= estimate.high
    assert bootstrap_mean(shuffled) == estimate
    reordered = bootstrap_mean(shuffled, clusters=[clusters[index] for index in order])
    assert reordered == bootstrap_mean(values, clusters=clusters)


def test_one_cluster_gives_no_bounds():
    estimate = bootstrap_mean([1.0, 3.0], clusters=["a", "a"])
    assert (estimate.value, estimate.low, estimate.high) == (2.0, None, None)


def test_wilson_gives_the_published_intervals() -> None:
    # Newcombe 1998, table I, score method: right answers, prompts, bounds.
    for right, total, *bounds in ((81, 263, 0.2553, 0.3662), (0, 20, 0.0, 0.1611)):
        estimate = wilson(right, total)
        assert [estimate.low, estimate.high] == pytest.approx(bounds, abs=5e-5)


SKEWED = [0.1, 0.7, 0.4, 2.5, 0.3, 0.9, 1.1, 0.2]
CLUSTERS = ["a", "a", "b", "c", "c", "d", "e", "f"]
HITS = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]


def test_an_interval_changes_only_with_its_definition_which_cells_are_identified_by():
    """If this fails, raise the estimator's `version` in INTERVALS; then change the numbers here."""
    recorded = {
        ("bootstrap_mean", 1): [(0.35, 1.3253125), (0.4032258064516, 1.1150795454545)],
        ("wilson", 1): [(0.4092754303102, 0.9285207872479)],
        ("mean_estimate", 1): [(0.6, 1.0), (0.4092754303102, 0.9285207872479), (0.35, 1.3253125)],
    }
    weights = range(1, 9)
    computed = {
        "bootstrap_mean": [
            bootstrap_mean(SKEWED),
            bootstrap_mean(SKEWED, weights=weights, clusters=CLUSTERS),
        ],
        "wilson": [wilson(6, 8)],
        "mean_estimate": [
            mean_estimate(HITS, CLUSTERS),
            mean_estimate(HITS, [None] * 8),
            mean_estimate(SKEWED, [None] * 8),
        ],
    }
    assert computed.keys() == INTERVALS.keys()
    for name, estimates in computed.items():
        bounds = [(estimate.low, estimate.high) for estimate in estimates]
        expected = recorded[name, INTERVALS[name]["version"]]
        assert bounds == [pytest.approx(pair, rel=1e-12) for pair in expected]


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
