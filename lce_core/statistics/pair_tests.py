"""Two-sided tests of no difference between two methods on the same prompts."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from lce_core.statistics._checks import finite, settled

LARGEST_EXACT = 50
"""Number of non-zero differences up to which Wilcoxon's p-value is exact; the normal approximation
follows."""


@lru_cache(maxsize=4096)
def exact_mcnemar(num_first_only: int, num_second_only: int) -> float:
    """Return the two-sided p-value of the hypothesis that both methods are right equally often.

    The prompts must be independent and each answer right or wrong. Prompts that both methods answer
    right, or both wrong, do not count. Under the hypothesis each other prompt favours either method
    with probability 1/2. If there are none, the p-value is 1.

    Args:
      num_first_only: number of prompts that only the first method answers right.
      num_second_only: number of prompts that only the second method answers right.

    Source: McNemar 1947 (Psychometrika 12, 153-157), with the binomial distribution instead of its
    normal approximation.
    """
    assert min(num_first_only, num_second_only) >= 0, (num_first_only, num_second_only)
    num_prompts = num_first_only + num_second_only
    if not num_prompts:
        return 1.0
    return float(stats.binomtest(num_first_only, num_prompts, 0.5).pvalue)


def wilcoxon(differences: ArrayLike) -> tuple[float, int]:
    """Return the two-sided p-value of symmetry about 0, and the sign of the rank sum: 1, -1 or 0.

    Differences of 0 are dropped, as in McNemar's test; if no others are left, the p-value is 1. The
    distribution is exact for up to 50 differences, with or without ties, and normal with a
    correction for ties beyond that. The sign may differ from that of the mean, because many small
    differences outweigh a few large ones.

    Args:
      differences: (n,), one per prompt or per document mean.

    Source: Wilcoxon 1945 (Biometrics Bulletin 1, 80-83); Pratt and Gibbons 1981, Concepts of
    Nonparametric Theory, chapter 3 (ties).
    """
    data = finite("wilcoxon", differences)
    data = settled(data, data)
    data = data[data != 0]
    if not data.size:
        return 1.0, 0
    # Ties get the mean of their ranks, a multiple of 1/2, so doubled ranks are whole numbers.
    _, place, number = np.unique(np.abs(data), return_inverse=True, return_counts=True)
    doubled = (2 * np.cumsum(number) - number + 1)[place]
    above = int(doubled[data > 0].sum() - doubled[data < 0].sum())
    sign = (above > 0) - (above < 0)
    if data.size <= LARGEST_EXACT:
        return _share_as_uneven(tuple(sorted(doubled.tolist())), abs(above)), sign
    return float(2 * stats.norm.sf(abs(above) / math.sqrt(float((doubled**2).sum())))), sign


@lru_cache(maxsize=4096)
def _share_as_uneven(doubled: tuple[int, ...], apart: int) -> float:
    """Return the exact p-value, given doubled ranks.

    It is the fraction of the 2^n assignments of signs to ranks for which the sums of positive and
    negative ranks differ by at least `apart`.
    """
    # ways[s] counts the sign assignments whose positive ranks sum to s, built up rank by rank.
    total = sum(doubled)
    ways = np.zeros(total + 1)
    ways[0] = 1.0
    for rank in doubled:
        ways[rank:] += ways[: total + 1 - rank].copy()
    ways /= 2.0 ** len(doubled)
    uneven = np.abs(2 * np.arange(total + 1) - total) >= apart
    return min(1.0, float(ways[uneven].sum()))
