"""Paired comparison: how much better one method is than another on the same prompts."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from lce_core.statistics._checks import settled
from lce_core.statistics.pair_tests import exact_mcnemar, wilcoxon
from lce_core.statistics.quantiles import student_quantile

FEWEST_CLUSTERS = 6
"""Minimum number of clusters (documents or prompts) for a 95 % interval. With fewer, even the
interval from the lowest to the highest cluster covers less than 95 %: in more than 5 % of studies
all clusters lie on one side of the true mean."""
_SEED = 0
_BLOCK_ELEMENTS = 1 << 20
_BLOCK_PAIRS = 256

Test = Literal["mcnemar", "wilcoxon"]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Intervals:
    """95 % intervals of the means of several columns, each array of shape (columns,)."""

    low: Numbers
    """Lower bounds; NaN with fewer than `FEWEST_CLUSTERS` clusters, like `high`."""
    high: Numbers
    error: Numbers
    """Standard errors; NaN with one cluster."""


def compared(
    first: Numbers, second: Numbers, numbers: NDArray[np.int64], difference: float
) -> tuple[Test, float, int, int]:
    """Test whether two methods differ; return test, two-sided p-value, clusters won and lost.

    Args:
      first: finite scores (n,).
      second: scores of the other method on the same prompts (n,).
      numbers: cluster of each prompt, numbered from 0 without gaps (n,).
      difference: the difference, possibly of weighted means, that is reported with the p-value. If
        the test points in the opposite direction, the p-value is 1, which is conservative: the
        one-sided p-value in the reported direction is then at least 0.5.
    """
    sizes = np.bincount(numbers)
    means = settled(np.bincount(numbers, weights=first - second) / sizes, first, second)
    wins, losses = int((means > 0).sum()), int((means < 0).sum())
    test: Test
    if sizes.max() == 1 and is_binary(first) and is_binary(second):
        test, p_value, sign = "mcnemar", exact_mcnemar(wins, losses), wins - losses
    else:
        test = "wilcoxon"
        p_value, sign = wilcoxon(means)
    return test, 1.0 if sign * difference < 0 else p_value, wins, losses


def is_binary(scores: Numbers) -> bool:
    return bool(((scores == 0) | (scores == 1)).all())


def intervals(values: Numbers, numbers: NDArray[np.int64], *, resamples: int = 10_000) -> Intervals:
    """Return 95 % intervals of the mean of each column, by resampling whole clusters.

    The bootstrap quantiles are wider than 2.5 % and 97.5 %, chosen so that normally distributed
    clusters get Student's t interval. The order of prompts and clusters has no effect.

    Args:
      values: finite numbers (n, columns): differences, or the contribution of each prompt to a
        difference.
      numbers: cluster of each row, numbered from 0 without gaps (n,).
      resamples: number of bootstrap draws, half of them of the negated values.

    Source: Davison and Hinkley 1997, Bootstrap Methods and their Application, section 3.8 (clusters
    resampled, members kept); Hesterberg 2015 (The American Statistician 69, 371-386; expanded
    percentile interval); Cameron and Miller 2015 (Journal of Human Resources 50, 317-372: standard
    errors).
    """
    assert values.ndim == 2, f"values of shape {values.shape}"
    assert values.size, "no value"
    assert len(numbers) == len(values), f"{len(values)} rows, {len(numbers)} cluster numbers"
    blocks = [
        _block(values[:, start : start + _BLOCK_PAIRS], numbers, resamples)
        for start in range(0, values.shape[1], _BLOCK_PAIRS)
    ]
    low, high, error = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return Intervals(low, high, error)


def _block(
    values: Numbers, numbers: NDArray[np.int64], resamples: int
) -> tuple[Numbers, Numbers, Numbers]:
    sizes = np.bincount(numbers).astype(np.float64)
    sums = _cluster_sums(values, numbers, len(sizes))
    means, number = sums.sum(axis=0) / len(values), len(sizes)
    unknown = np.full(means.shape, np.nan)
    if number == 1:
        return unknown, unknown, unknown
    added = sums - sizes[:, None] * means
    error = np.sqrt(number / (number - 1) * (added**2).sum(axis=0)) / len(values)
    if number < FEWEST_CLUSTERS:
        return unknown, unknown, error
    # Expanded percentile interval: bootstrap standard errors lack the factor sqrt(G / (G - 1)) and
    # normal quantiles are narrower than those of t; the tail probability makes up for both.
    quantile = student_quantile(0.975, number - 1)
    tail = stats.norm.sf(math.sqrt(number / (number - 1)) * quantile)
    bounds = np.quantile(_draws(sums, sizes, resamples // 2), [tail, 1 - tail], axis=0)
    low, high = settled(bounds, values)
    return np.minimum(low, means), np.maximum(high, means), error


def _cluster_sums(values: Numbers, numbers: NDArray[np.int64], number: int) -> Numbers:
    """Return the sum of each cluster in each column (clusters, columns)."""
    if number == len(values):
        sums = np.empty_like(values)
        sums[numbers] = values
        return sums
    columns = np.ascontiguousarray(values.T)
    # Sort before adding: a floating-point sum depends on its order.
    sums = np.empty((number, len(columns)))
    for column, one in enumerate(columns):
        order = np.argsort(one, kind="stable")
        sums[:, column] = np.bincount(numbers[order], weights=one[order], minlength=number)
    return sums


def _draws(sums: Numbers, sizes: Numbers, half: int) -> Numbers:
    """Return the mean of each bootstrap draw of whole clusters (2 * half, columns).

    The first half of the draws orders the clusters by ascending sums, the second by descending
    sums. Negating all values therefore gives exactly the negated draws.
    """
    totals = np.broadcast_to(sizes[:, None], sums.shape)
    counts = _counts(len(sizes), half)
    alike = bool((sizes == sizes[0]).all())
    found = []
    for keys in (sums, -sums):
        order = np.lexsort((totals, keys), axis=0)
        drawn = counts @ np.take_along_axis(sums, order, axis=0)
        found.append(
            drawn / len(sizes) / sizes[0]
            if alike
            else drawn / (counts @ np.take_along_axis(totals, order, axis=0))
        )
    return np.concatenate(found)


def _counts(number: int, draws: int) -> Numbers:
    """Return how often each cluster occurs in each bootstrap draw (draws, clusters), seeded."""
    return (_kept_counts if number * draws <= _BLOCK_ELEMENTS else _drawn_counts)(number, draws)


def _drawn_counts(number: int, draws: int) -> Numbers:
    rng = np.random.default_rng(_SEED)
    counts = np.empty((draws, number))
    block = max(1, _BLOCK_ELEMENTS // number)
    for start in range(0, draws, block):
        size = min(block, draws - start)
        drawn = rng.integers(number, size=(size, number))
        drawn += number * np.arange(size)[:, None]
        flat = np.bincount(drawn.ravel(), minlength=size * number)
        counts[start : start + size] = flat.reshape(size, number)
    counts.flags.writeable = False
    return counts


# Cached: hundreds of tasks with the same number of prompts use the same draws.
_kept_counts = functools.lru_cache(maxsize=4)(_drawn_counts)
