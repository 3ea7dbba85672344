"""Means of scores that are clustered in documents, or come from several training seeds.

Unlike bootstrap intervals, intervals over documents hold for few documents (10 in the papers) and
have a positive width even if every answer is right. They say nothing about the variation by seed
(initial weights, data order); means over seeds generalise to seeds and prompts that were not run.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

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
    data = finite(values)
    numbers = cluster_numbers(clusters, data)
    mean, num_clusters = float(data.mean()), int(numbers.max()) + 1
    if num_clusters == 1:
        return ClusteredEstimate(mean, None, None, data.size, num_clusters)
    added = np.bincount(numbers, weights=data - mean)
    correction = added.size / (added.size - 1)
    error = math.sqrt(correction * float(added @ added)) / data.size
    if np.isin(data, (0, 1)).all():
        low, high = _share_bounds(mean, error, data.size, num_clusters, level)
    else:
        half = float(special.stdtrit(num_clusters - 1, (1 + level) / 2)) * error
        low, high = mean - half, mean + half
    return ClusteredEstimate(mean, min(low, mean), max(high, mean), data.size, num_clusters)


def _share_bounds(
    share: float, error: float, num_samples: int, num_clusters: int, level: float
) -> tuple[float, float]:
    # `worth` is the effective number of independent answers. Korn and Graubard correct it by the
    # squared ratio of the t quantiles with n - 1 and G - 1 degrees of freedom.
    tail = (1 - level) / 2
    if share in (0, 1):
        worth: float = num_clusters
    else:
        of_samples, of_clusters = special.stdtrit([num_samples - 1, num_clusters - 1], tail)
        fewer = float(of_samples / of_clusters)
        alike = share * (1 - share) / error**2 if error else math.inf
        worth = min(num_samples, alike * fewer**2)
    right, wrong = share * worth, (1 - share) * worth
    low = stats.beta.ppf(tail, right, wrong + 1) if right else 0.0
    high = stats.beta.isf(tail, right + 1, wrong) if wrong else 1.0
    return float(low), float(high)


@dataclass(frozen=True)
class SeedMean(Estimate):
    """A mean over seeds with its 95 % interval; `low` and `high` are None with one seed."""

    num_seeds: int
    seed_sd: float | None
    """Estimated standard deviation between seeds, without prompt noise; None with one seed."""
    document_sd: float
    """Estimated standard deviation of a document's (or prompt's) score within a seed."""


def mean_over_seeds(scores: Sequence[ArrayLike], *, same_prompts: bool) -> SeedMean:
    """Return the mean of the seeds' means, with a 95 % interval for other seeds and prompts.

    `scores` has for each seed the scores of its prompts (n,), or means per document if prompts
    share documents. `same_prompts`, in the same order, make seeds and prompts crossed random
    effects, and the interval covers the mean in at least 95 % of studies, more often if seeds
    hardly differ. Otherwise prompts are nested in seeds and all seeds have equal weight.

    Source: Searle, Casella and McCulloch 1992, Variance Components, chapter 4 (expected mean
    squares); Banerjee 1960 (Sankhya 22, 357-358: each part of a variance with its own t quantile).
    Satterthwaite's degrees of freedom instead cover 91.5 % with 3 seeds whose standard deviation is
    half that of 100 shared prompts.
    """
    seeds = [finite(one) for one in scores]
    assert seeds, "no seed"
    if not same_prompts:
        return _nested(seeds)
    assert len({one.size for one in seeds}) == 1, [one.size for one in seeds]
    return _crossed(np.array(seeds))


def _nested(seeds: list[NDArray[np.float64]]) -> SeedMean:
    means = np.array([one.mean() for one in seeds])
    num_scores = sum(one.size for one in seeds)
    deviations = sum(float(((one - one.mean()) ** 2).sum()) for one in seeds)
    within = deviations / max(1, num_scores - len(seeds))
    if len(seeds) == 1:
        return SeedMean(float(means[0]), None, None, num_scores, 1, None, math.sqrt(within))
    between = float(means.var(ddof=1))
    of_prompts = within * float(np.mean([1 / one.size for one in seeds]))
    half = _quantile(len(seeds)) * math.sqrt(between / len(seeds))
    return _result(means, half, num_scores, between - of_prompts, within)


def _crossed(scores: NDArray[np.float64]) -> SeedMean:
    num_seeds, num_prompts = scores.shape
    if num_seeds == 1 or num_prompts == 1:
        return _nested(list(scores))
    means, of_prompts = scores.mean(axis=1), scores.mean(axis=0)
    rest = scores - means[:, None] - of_prompts + scores.mean()
    square_seeds = num_prompts * float(means.var(ddof=1))
    square_prompts = num_seeds * float(of_prompts.var(ddof=1))
    square_rest = float((rest**2).sum()) / ((num_seeds - 1) * (num_prompts - 1))
    # Variance that prompts add to the mean, beyond what the spread of the seeds already contains.
    added = max(0.0, square_prompts - square_rest)
    # Each part of the variance has its own t quantile (Banerjee 1960).
    half = math.sqrt(
        (_quantile(num_seeds) ** 2 * square_seeds + _quantile(num_prompts) ** 2 * added)
        / scores.size
    )
    of_seeds = (square_seeds - square_rest) / num_prompts
    return _result(means, half, scores.size, of_seeds, square_rest + added / num_seeds)


def _quantile(number: int) -> float:
    return float(special.stdtrit(number - 1, 0.975))


def _result(
    means: NDArray[np.float64], half: float, num_scores: int, of_seeds: float, within: float
) -> SeedMean:
    value, seed_sd = float(means.mean()), math.sqrt(max(0.0, of_seeds))
    return SeedMean(
        value, value - half, value + half, num_scores, len(means), seed_sd, math.sqrt(within)
    )
