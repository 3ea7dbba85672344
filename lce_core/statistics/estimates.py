"""Estimates with 95 % intervals: seeded (cluster) bootstrap for means, Wilson for accuracies.

The same values give the same interval in any order.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

NORMAL_QUANTILE = 1.959963984540054
NUM_RESAMPLES = 2000
QUANTILES = (0.025, 0.975)
SEED = 0
INTERVALS: dict[str, Any] = {
    "bootstrap_mean": {
        "version": 1,
        "resamples": NUM_RESAMPLES,
        "quantiles": list(QUANTILES),
        "seed": SEED,
    },
    "wilson": {"version": 1, "normal_quantile": NORMAL_QUANTILE},
    "mean_estimate": {"version": 1},
}
"""Definition of every interval that scores are stored with. It is part of a cell's identity, so a
changed constant gives cells new ids. Raise `version` if the code computes another interval from the
same constants; tests/lce_core/statistics/test_estimates.py holds the intervals of each version."""
_BLOCK_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval; `low` and `high` are None with one value or cluster."""

    value: float
    low: float | None
    high: float | None
    num_samples: int


def finite(values: ArrayLike) -> NDArray[np.float64]:
    """Return the values as a float64 array (n,); assert that n > 0 and that all are finite."""
    data = np.asarray(values, dtype=np.float64)
    assert data.ndim == 1, f"values of shape {data.shape}"
    assert data.size, "no value"
    assert np.isfinite(data).all(), "NaN or infinite values"
    return data


def cluster_numbers(
    clusters: Sequence[Hashable] | None, values: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the number of each value's cluster (n,), from 0 in order of first occurrence.

    Without clusters each value gets its own number.
    """
    if clusters is None:
        return np.arange(values.size)
    assert len(clusters) == values.size, f"{len(clusters)} clusters for {values.size} values"
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(one, len(numbers)) for one in clusters], dtype=np.int64)


def bootstrap_mean(
    values: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    clusters: Sequence[Hashable] | None = None,
) -> Estimate:
    """Return the weighted mean of `values` with a percentile interval over resampled clusters.

    By default the values (n,) have equal weights, which must be positive, and a cluster each.
    """
    data = finite(values)
    weight = np.ones_like(data) if weights is None else np.asarray(weights, dtype=np.float64)
    sums, totals = _cluster_totals(data * weight, weight, clusters)
    value = float(sums.sum() / totals.sum())
    if len(sums) == 1:
        return Estimate(value, None, None, data.size)
    rng, num_clusters = np.random.default_rng(SEED), len(sums)
    block = max(1, _BLOCK_ELEMENTS // num_clusters)
    means = np.empty(NUM_RESAMPLES)
    for start in range(0, NUM_RESAMPLES, block):
        size = (min(block, NUM_RESAMPLES - start), num_clusters)
        drawn = rng.integers(num_clusters, size=size)
        means[start : start + size[0]] = sums[drawn].sum(axis=1) / totals[drawn].sum(axis=1)
    low, high = np.quantile(means, QUANTILES)
    # The percentile interval of a skewed sample may exclude its own mean.
    return Estimate(value, min(float(low), value), max(float(high), value), data.size)


def wilson(num_right: int, num_samples: int) -> Estimate:
    """Return the accuracy num_right / num_samples with Wilson's score interval."""
    assert 0 <= num_right <= num_samples > 0, f"{num_right} right of {num_samples}"
    share, square = num_right / num_samples, NORMAL_QUANTILE**2
    centre = (share + square / (2 * num_samples)) / (1 + square / num_samples)
    variance = share * (1 - share) / num_samples + square / (4 * num_samples**2)
    half = NORMAL_QUANTILE * math.sqrt(variance) / (1 + square / num_samples)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return Estimate(share, min(low, share), max(high, share), num_samples)


def mean_estimate(values: Sequence[float], clusters: Sequence[Hashable | None]) -> Estimate:
    """Return the mean of scores: bootstrapped by clusters, or Wilson's for scores of 0 and 1."""
    if clusters[0] is not None:
        return bootstrap_mean(values, clusters=clusters)
    if all(value in (0, 1) for value in values):
        return wilson(int(sum(values)), len(values))
    return bootstrap_mean(values)


def _cluster_totals(
    values: NDArray[np.float64], weights: NDArray[np.float64], clusters: Sequence[Hashable] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if clusters is None:
        sums, totals = values, weights
    else:
        index = cluster_numbers(clusters, values)
        # Sort before adding: a floating-point sum depends on its order.
        order = np.lexsort((weights, values))
        members = index[order]
        sums = np.asarray(np.bincount(members, weights=values[order]), dtype=np.float64)
        totals = np.asarray(np.bincount(members, weights=weights[order]), dtype=np.float64)
    ranked = np.lexsort((totals, sums))
    return sums[ranked], totals[ranked]
