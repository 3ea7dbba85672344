"""Means of scores that are clustered in documents, with intervals at any level.

Unlike bootstrap intervals, these hold for few documents (10 in the papers) and have a positive
width even if every answer is right.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from lce_core.statistics.estimates import Estimate, cluster_numbers, finite


@dataclass(frozen=True)
class ClusteredEstimate(Estimate):
    """A mean with its interval; `low` and `high` are None if there is only one cluster."""

    num_clusters: int


def clustered_mean(
    values: ArrayLike, clusters: Sequence[Hashable] | None = None, *, level: float = 0.95
) -> ClusteredEstimate:
    """Return the mean of `values` with an interval that generalises to other documents.

    `clusters` names the document of each value (n,); None makes every value its own cluster. Scores
    of 0 and 1 get a Clopper-Pearson interval for an effective number of independent answers: the
    number that has the observed variance of the mean, or one per document if all answers are equal.
    Other scores get a Student t interval with one degree of freedom less than documents.

    Source: Cameron and Miller 2015 (Journal of Human Resources 50, 317-372: variance over clusters
    times G / (G - 1), t with G - 1); Miller 2024 (arXiv:2411.00640, the same for evaluations); Korn
    and Graubard 1998 (Survey Methodology 24, 193-201: fractions).
    """
    assert 0 < level < 1, f"level {level}"
    data = finite("clustered_mean", values)
    numbers = cluster_numbers("clusters", clusters, data)
    mean, num_clusters = float(data.mean()), int(numbers.max()) + 1
    if num_clusters == 1:
        return ClusteredEstimate(mean, None, None, data.size, num_clusters)
    error = _standard_error(data, numbers)
    quantile = student_quantile((1 + level) / 2, num_clusters - 1)
    if np.isin(data, (0, 1)).all():
        low, high = _share_bounds(mean, error, data.size, num_clusters, level)
    else:
        low, high = mean - quantile * error, mean + quantile * error
    return ClusteredEstimate(mean, min(low, mean), max(high, mean), data.size, num_clusters)


@lru_cache(maxsize=1024)
def student_quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's t at probability `share`; NaN for 0 degrees of freedom.

    Cached, because scipy spends longer on checking arguments than on computing.
    """
    return float(stats.t.ppf(share, freedom))


def _standard_error(data: NDArray[np.float64], numbers: NDArray[np.int64]) -> float:
    added = np.bincount(numbers, weights=data - data.mean())
    correction = added.size / (added.size - 1)
    return math.sqrt(correction * float(added @ added)) / data.size


def _share_bounds(
    share: float, error: float, num_samples: int, num_clusters: int, level: float
) -> tuple[float, float]:
    # `worth` is the effective number of independent answers. Korn and Graubard correct it by the
    # squared ratio of the t quantiles with n - 1 and G - 1 degrees of freedom.
    tail = (1 - level) / 2
    if share in (0, 1):
        worth: float = num_clusters
    else:
        fewer = student_quantile(tail, num_samples - 1) / student_quantile(tail, num_clusters - 1)
        alike = share * (1 - share) / error**2 if error else math.inf
        worth = min(num_samples, alike * fewer**2)
    right, wrong = share * worth, (1 - share) * worth
    low = stats.beta.ppf(tail, right, wrong + 1) if right else 0.0
    high = stats.beta.isf(tail, right + 1, wrong) if wrong else 1.0
    return float(low), float(high)
