"""Tests of no difference between two methods on the same prompts; two-sided p-values."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from lce_core.errors import DataError
from lce_core.statistics._checks import finite, settled

LARGEST_EXACT = 50
"""Differences up to which Wilcoxon's distribution is counted."""


@lru_cache(maxsize=4096)
def exact_mcnemar(num_first_only: int, num_second_only: int) -> float:
    """p-value for independent prompts that are answered right or wrong.

    Prompts that both methods answer alike say nothing on which is better; of the others, each is as
    likely to be either's if the methods are equally good. 1 where there are none.

    Args:
      num_first_only: prompts that only the first method answers right.
      num_second_only: prompts that only the second does.

    Raises:
      DataError: a negative number.

    Source: McNemar 1947 (Psychometrika 12, 153-157), by the binomial distribution instead of its
    normal approximation.
    """
    if min(num_first_only, num_second_only) < 0:
        raise DataError(
            "exact_mcnemar",
            f"{num_first_only} and {num_second_only} prompts",
            "two numbers of prompts, 0 or more",
            "count the prompts that one method alone answers right",
        )
    num_prompts = num_first_only + num_second_only
    if not num_prompts:
        return 1.0
    return float(stats.binomtest(num_first_only, num_prompts, 0.5).pvalue)


def wilcoxon(differences: ArrayLike) -> float:
    """p-value for independent differences that are as likely to be x as -x.

    Differences of 0 are left out, as in McNemar's test; 1 where there are no others. The
    distribution is exact for up to 50 others, of distinct size or not, and beyond that normal with
    ties corrected for.

    Args:
      differences: (n,), one of each prompt or of each document's mean.

    Raises:
      DataError: no differences, or one that is not finite.

    Source: Wilcoxon 1945 (Biometrics Bulletin 1, 80-83); Pratt and Gibbons 1981, Concepts of
    Nonparametric Theory, chapter 3 (ties).
    """
    return signed_ranks(differences)[0]


def signed_ranks(differences: ArrayLike) -> tuple[float, int]:
    """The p-value of `wilcoxon`, and whether it finds more above 0 (1), below 0 (-1) or neither.

    That is not always the sign of the mean: many small differences outweigh a few large ones.

    Args:
      differences: as of `wilcoxon`.

    Raises:
      DataError: no differences, or one that is not finite.
    """
    data = finite("wilcoxon", differences)
    data = settled(data, data)
    data = data[data != 0]
    if not data.size:
        return 1.0, 0
    # Ranks of equal differences are their mean, a whole number or a half: doubled, all are whole.
    _, place, number = np.unique(np.abs(data), return_inverse=True, return_counts=True)
    doubled = (2 * np.cumsum(number) - number + 1)[place]
    above = int(doubled[data > 0].sum() - doubled[data < 0].sum())
    sign = (above > 0) - (above < 0)
    if data.size <= LARGEST_EXACT:
        return _share_as_uneven(tuple(sorted(doubled.tolist())), abs(above)), sign
    return float(2 * stats.norm.sf(abs(above) / math.sqrt(float((doubled**2).sum())))), sign


@lru_cache(maxsize=4096)
def _share_as_uneven(doubled: tuple[int, ...], apart: int) -> float:
    """Share of all signs of these ranks whose sums are at least so far apart."""
    total = sum(doubled)
    ways = np.zeros(total + 1)
    ways[0] = 1.0
    for rank in doubled:
        ways[rank:] += ways[: total + 1 - rank].copy()
    ways /= 2.0 ** len(doubled)
    uneven = np.abs(2 * np.arange(total + 1) - total) >= apart
    return min(1.0, float(ways[uneven].sum()))
