"""Effective context length: the longest length at which a score still reaches a threshold."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray
from scipy import special

from lce_core.statistics.clustered import clustered_mean
from lce_core.statistics.estimates import Estimate

LEVEL = 0.95
NONE = 0
"""Effective length of a method whose mean misses the threshold already at the shortest length."""


@dataclass(frozen=True)
class EffectiveLength:
    """The longest evaluated length in tokens up to which a mean score reaches a threshold.

    If `high` is the longest evaluated length, the true value may be longer.
    """

    tokens: int
    low: int
    high: int
    """Upper bound; `low` and `high` form a 95 % interval of evaluated lengths or `NONE`."""
    longest: int


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of prompts at one length."""

    values: NDArray[np.float64]
    """Shape (n,)."""
    clusters: Sequence[Hashable] | None = None
    """Document of each score; None makes every score its own cluster."""
    seeds: Sequence[int] | None = None
    """Training seed of each score; None: one training run."""


@dataclass(frozen=True)
class Threshold:
    """Score that a mean must reach: `factor` times the base model's mean score, plus `shift`."""

    scores: Scores
    """Scores of the base model's prompts."""
    length: int
    """Length of these prompts in tokens. An equal number of a method's scores at this length are of
    the same prompts in the same order."""
    factor: float = 1.0
    shift: float = 0.0

    @property
    def value(self) -> float:
        return self.factor * float(self.scores.values.mean()) + self.shift

    def margin(self, length: int, sample: Scores, level: float) -> Estimate:
        """Return the mean of a sample minus the threshold, with an interval of this level.

        Scores at other lengths count as independent of the base model's. Their interval combines
        those of the two means, which may be asymmetric: Zou and Donner 2008 (Statistics in Medicine
        27, 1693-1702).
        """
        base_values, num_samples = self.scores.values, sample.values.size
        if length == self.length and num_samples == base_values.size:
            same = replace(sample, values=sample.values - self.factor * base_values)
            return _minus(_mean(same, level), self.shift)
        mean, base = _mean(sample, level), _mean(self.scores, level)
        margin = mean.value - self.value
        if mean.low is None or mean.high is None or base.low is None or base.high is None:
            return Estimate(margin, None, None, num_samples)
        below = math.hypot(mean.value - mean.low, self.factor * (base.high - base.value))
        above = math.hypot(mean.high - mean.value, self.factor * (base.value - base.low))
        return Estimate(margin, margin - below, margin + above, num_samples)


def effective_length(
    scores: Mapping[int, Scores],
    threshold: float | Threshold,
    *,
    higher_is_better: bool = True,
) -> EffectiveLength:
    """Return the longest length up to which every mean reaches `threshold`, with 95 % bounds.

    RULER instead uses the longest length above the threshold. A method that fails at 8k and passes
    at 16k by chance has an effective length below 8k here.

    The lower bound is the last length before the first one whose interval includes values below the
    threshold. The upper bound is the last length before the first one whose interval lies entirely
    below it; as any of the lengths could end it by chance, those intervals use a stricter level.
    Each bound is wrong in at most 2.5 % of studies.

    `scores` are by evaluated length in tokens. A `threshold` that is a number counts as known, such
    as RULER's 0.856 (the score of Llama-2-7B at 4k); a `Threshold` is as uncertain as the base
    model's score. A loss, with `higher_is_better=False`, must not exceed it.

    Source: Hsieh et al. 2024 (arXiv:2404.06654, section 4: effective length); Hsu and Berger 1999
    (Journal of the American Statistical Association 94, 468-482: stepwise bounds).
    """
    assert scores, "no length"
    lengths = sorted(scores)
    strict = 1 - (1 - LEVEL) / len(lengths)
    reached, surely, possibly = [], [], []
    for length in lengths:
        mean, wide = (
            threshold.margin(length, scores[length], level)
            if isinstance(threshold, Threshold)
            else _minus(_mean(scores[length], level), threshold)
            for level in (LEVEL, strict)
        )
        worst, best = (mean.low, wide.high) if higher_is_better else (mean.high, wide.low)
        sign = 1 if higher_is_better else -1
        reached.append(sign * mean.value >= 0)
        surely.append(worst is not None and sign * worst >= 0)
        possibly.append(best is None or sign * best >= 0)
    return EffectiveLength(
        _first_run(lengths, reached),
        _first_run(lengths, surely),
        _first_run(lengths, possibly),
        lengths[-1],
    )


def _mean(sample: Scores, level: float) -> Estimate:
    """Return a mean with the wider of two intervals: over documents and over training seeds."""
    values = sample.values
    found = clustered_mean(values, sample.clusters, level=level)
    seeds = np.array([] if sample.seeds is None else sample.seeds)
    runs = np.unique(seeds)
    if len(runs) < 2 or found.low is None or found.high is None:
        return found
    means = np.array([values[seeds == run].mean() for run in runs])
    error = float(means.std(ddof=1)) / math.sqrt(len(runs))
    half = float(special.stdtrit(len(runs) - 1, (1 + level) / 2)) * error
    low, high = min(found.low, found.value - half), max(found.high, found.value + half)
    return Estimate(found.value, low, high, values.size)


def _minus(mean: Estimate, number: float) -> Estimate:
    low, high = (None if bound is None else bound - number for bound in (mean.low, mean.high))
    return Estimate(mean.value - number, low, high, mean.num_samples)


def _first_run(lengths: Sequence[int], holds: Sequence[bool]) -> int:
    return [NONE, *lengths][sum(1 for _ in takewhile(bool, holds))]
