"""Differences of two methods' means, with tests and intervals over training seeds and prompts.

A difference generalises to what its scores sample. If the methods were trained once per seed, that
is other training seeds (and other prompts, if all seeds answered the same ones); otherwise only
other prompts, or documents if prompts share them: clusters.

`Contrast` holds one difference with the standard error of either source, and `adjust` corrects a
family of them for multiple comparisons. `seed_variances` estimates how much training seeds vary.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from lce_core.statistics.holm import holm
from lce_core.statistics.mcnemar import exact_mcnemar
from lce_core.statistics.power import (
    ALPHA,
    POWER,
    approximate_power,
    detectable_fraction,
    detectable_shift,
    fewest,
)

FEWEST_CLUSTERS = 6
"""Minimum number of clusters for a 95 % interval: all of five clusters lie on one side of the true
mean in 6 % of studies."""
_LOG_SMALLEST = -100.0
"""Smallest base-10 logarithm of a p-value; smaller ones are reported as this. Beyond 1e-120 some of
scipy's t quantiles are NaN (scipy 1.17)."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Contrast:
    """A difference of two means and what its uncertainty consists of.

    Source of the two-part interval: Banerjee 1960 (Sankhya 22, 357-358), which gives each part of a
    variance its own t quantile. With clusters alone, the larger p-value of Student's t and of
    Hall's transformation counts: Hall 1992 (Journal of the Royal Statistical Society B 54, 221-228)
    removes the effect of skewness, and Student's t is better for few clusters.
    """

    value: float
    """Difference, in the unit of the scores (log perplexity for perplexities)."""
    num_clusters: int
    """Number of documents, or of prompts that share none."""
    cluster_error: float = 0.0
    """Standard error from the choice of clusters; 0 if `seed_error` includes it."""
    skewness: float = 0.0
    """Skewness of the clusters' contributions; used only if `seed_error` is 0."""
    seed_error: float = 0.0
    """Standard error from training seeds; 0 if both methods have one training run."""
    seed_freedom: float = math.inf
    """Degrees of freedom of `seed_error`."""
    num_seeds: int = 1
    """Number of training seeds."""
    is_crossed: bool = False
    """True if the runs of all seeds answered the same clusters, so that these need to suffice."""
    discordant: tuple[int, int] | None = None
    """Number of prompts that only the first method, and that only the second method answers right.
    None unless prompts are independent and scores are 0 or 1."""

    def p_value(self, hypothesis: float = 0.0) -> float:
        """Return the two-sided p-value of the hypothesis that the true difference is this one.

        Over clusters alone it is at least 2^(1 - clusters), the smallest p-value of a sign-flip
        test: with five clusters all signs agree by chance in 6 % of studies.
        """
        gap, floor = abs(self.value - hypothesis), 2.0 ** (1 - self.num_clusters)
        if self.seed_error:
            return max(self._two_part_p(gap), floor if self._lacks_clusters() else 0.0)
        if self.discordant is not None:
            centre, error = self._agresti_min()
            normal = 2 * float(special.ndtr(-abs(centre - hypothesis) / error))
            exact = exact_mcnemar(*self.discordant) if hypothesis == 0 else 0.0
            return max(normal, exact, floor)
        if not self.cluster_error:
            return 1.0 if gap == 0 else floor
        student = (self.value - hypothesis) / self.cluster_error
        larger = min(abs(student), abs(self._hall(student)))
        return max(2 * float(special.stdtr(self.num_clusters - 1, -larger)), floor)

    def interval(self, alpha: float = ALPHA) -> tuple[float, float] | None:
        """Return the differences whose p-value is above `alpha`: an interval of level 1 - alpha.

        Returns None if there are too few clusters for this level (see `p_value`).
        """
        if self.seed_error:
            if self._lacks_clusters():
                return None
            half = self._half(alpha)
            return self.value - half, self.value + half
        if 2.0 ** (1 - self.num_clusters) > alpha:
            return None
        if self.discordant is not None:
            centre, error = self._agresti_min()
            half = -float(special.ndtri(alpha / 2)) * error
            low, high = min(centre - half, self.value), max(centre + half, self.value)
            if exact_mcnemar(*self.discordant) > alpha:
                low, high = min(low, 0.0), max(high, 0.0)
            return max(low, -1.0), min(high, 1.0)
        quantile = -float(special.stdtrit(self.num_clusters - 1, alpha / 2))
        upper = max(quantile, self._inverse_hall(quantile))
        lower = min(-quantile, self._inverse_hall(-quantile))
        return self.value - self.cluster_error * upper, self.value - self.cluster_error * lower

    def p_beyond(self, bound: float, *, above: bool) -> float:
        """Return the one-sided p-value for a true difference above (or below) `bound`.

        Equivalence within a margin m has the larger p-value of above -m and below m (two one-sided
        tests: Schuirmann 1987, Journal of Pharmacokinetics and Biopharmaceutics 15, 657-680).
        """
        half = self.p_value(bound) / 2
        return half if (self.value > bound) == above else 1 - half

    def detectable(self, alpha: float = ALPHA) -> float | None:
        """Return the smallest true difference that would be detected in 4 of 5 studies.

        None if no difference would, or if nothing is known about the spread of differences.
        """
        if self.seed_error:
            if self._lacks_clusters():
                return None
            seeds = detectable_shift(round(self.seed_freedom, 1), alpha)
            prompts = detectable_shift(self.num_clusters - 1, alpha) if self.cluster_error else 0.0
            if seeds is None or prompts is None:
                return None
            return math.hypot(seeds * self.seed_error, prompts * self.cluster_error)
        if 2.0 ** (1 - self.num_clusters) > alpha:
            return None
        shift = detectable_shift(self.num_clusters - 1, alpha)
        if shift is None or (self.discordant is None and not self.cluster_error):
            return None
        if self.discordant is None:
            return shift * self.cluster_error
        discordance = sum(self.discordant) / self.num_clusters
        return detectable_fraction(shift, self.num_clusters, discordance)

    def num_needed(self, alpha: float = ALPHA, bounds: Sequence[float] = (0.0,)) -> int | None:
        """Return how many seeds or clusters would decide, if the true difference were `value`.

        With this number, 4 of 5 studies find a difference on the same side of every bound as
        `value`. It is a number of training seeds, which answer the same clusters as now, if
        `seed_error` is positive, and otherwise a number of clusters.

        Args:
          alpha: largest p-value that counts as a finding.
          bounds: differences from which the true one must be told apart: 0, or margins.

        Returns:
          A number above the present one; None above `MOST_NEEDED`, or if the spread is unknown.
        """
        if self._lacks_clusters() or (not self.seed_error and self.num_clusters < 2):
            return None
        gaps = [abs(self.value - bound) for bound in bounds]

        def suffices(number: int) -> bool:
            error, freedom = self._planned(number)
            if not self.seed_error and 2.0 ** (1 - number) > alpha:
                return False
            found = [
                approximate_power(gap / error, freedom, alpha) if error else float(gap > 0)
                for gap in gaps
            ]
            return sum(found) >= len(found) - 1 + POWER

        now = self.num_seeds if self.seed_error else self.num_clusters
        return fewest(suffices, now + 1)

    def _planned(self, number: int) -> tuple[float, float]:
        """Return standard error and degrees of freedom with this number of seeds or clusters."""
        if not self.seed_error:
            error = self.cluster_error * math.sqrt(self.num_clusters / number)
            if self.discordant is not None:
                error = self._agresti_min()[1] * math.sqrt((self.num_clusters + 2) / number)
            return error, number - 1
        of_seeds = self.seed_error * math.sqrt(self.num_seeds / number)
        freedom = self.seed_freedom * (number - 1) / (self.num_seeds - 1)
        error = math.hypot(of_seeds, self.cluster_error)
        # Satterthwaite 1946 (Biometrics Bulletin 2, 110-114).
        parts = of_seeds**4 / freedom + self.cluster_error**4 / max(1, self.num_clusters - 1)
        return error, error**4 / parts

    def __neg__(self) -> Contrast:
        """Return the difference of the two methods in the other order."""
        swapped = None if self.discordant is None else (self.discordant[1], self.discordant[0])
        return replace(self, value=-self.value, skewness=-self.skewness, discordant=swapped)

    def _lacks_clusters(self) -> bool:
        return self.is_crossed and self.num_clusters < FEWEST_CLUSTERS

    def _half(self, alpha: float) -> float:
        seeds = float(special.stdtrit(self.seed_freedom, alpha / 2)) * self.seed_error
        if not self.cluster_error:
            return abs(seeds)
        prompts = float(special.stdtrit(self.num_clusters - 1, alpha / 2)) * self.cluster_error
        return math.hypot(seeds, prompts)

    def _two_part_p(self, gap: float) -> float:
        if not self.cluster_error:
            return 2 * float(special.stdtr(self.seed_freedom, -gap / self.seed_error))
        if gap == 0 or self._half(10.0**_LOG_SMALLEST) <= gap:
            return 1.0 if gap == 0 else 10.0**_LOG_SMALLEST
        log = optimize.brentq(
            lambda log: self._half(10.0**log) - gap, _LOG_SMALLEST, 0.0, xtol=1e-9
        )
        return float(10.0**log)

    def _hall(self, student: float) -> float:
        slope = self.skewness / math.sqrt(self.num_clusters)
        return float(student + slope * student**2 / 3 + slope**2 * student**3 / 27 + slope / 6)

    def _inverse_hall(self, transformed: float) -> float:
        slope = self.skewness / math.sqrt(self.num_clusters)
        if abs(slope) < 1e-9:
            return transformed
        return float(3 / slope * (np.cbrt(1 + slope * (transformed - slope / 6)) - 1))

    def _agresti_min(self) -> tuple[float, float]:
        """Return centre and standard error of the interval for a difference of paired fractions.

        Half an answer is added to each of the four outcomes of a prompt, so that the width is
        positive even if all answers are right. Source: Agresti and Min 2005 (Statistics in Medicine
        24, 729-740).
        """
        assert self.discordant is not None
        wins, losses = self.discordant
        number, gap = self.num_clusters + 2, wins - losses
        return gap / number, math.sqrt(wins + losses + 1 - gap**2 / number) / number


@dataclass(frozen=True)
class Adjusted:
    """A contrast within its family of comparisons."""

    p_adjusted: float
    low: float | None
    """Lower bound of the simultaneous 95 % interval; it includes 0 if and only if `p_adjusted` is above
    0.05. None, like `high`, if there are too few clusters."""
    high: float | None
    alpha: float
    """Probability of error of this interval alone."""


def adjust(
    family: Sequence[Contrast], levels: Sequence[float] | None = None, num_untested: int = 0
) -> list[Adjusted]:
    """Correct a family of comparisons for their number, by Holm's procedure.

    In at least 95 % of studies all intervals of the family include their true difference.

    Args:
      family: the comparisons.
      levels: level of the look at which each comparison is tested (`spending.look_levels`); 0.05
        for all in a study without looks.
      num_untested: number of comparisons of the family that have no result yet.

    Source: Holm 1979 (Scandinavian Journal of Statistics 6, 65-70); Strassburger and Bretz 2008
    (Statistics in Medicine 27, 4914-4927: intervals that agree with it).
    """
    if not family:
        return []
    levels = levels or [ALPHA] * len(family)
    raw = [
        min(1.0, one.p_value() * (ALPHA / level)) for one, level in zip(family, levels, strict=True)
    ]
    adjusted = holm([*raw, *[1.0] * num_untested]).tolist()
    size, num_undecided = len(adjusted), sum(p_adjusted > ALPHA for p_adjusted in adjusted)
    found = []
    for one, level, p_adjusted in zip(family, levels, adjusted, strict=False):
        decided = p_adjusted <= ALPHA
        alpha = level / (size if decided or not num_undecided else num_undecided)
        bounds = one.interval(alpha)
        if bounds is None:
            found.append(Adjusted(p_adjusted, None, None, alpha))
            continue
        low, high = bounds
        if decided:  # Holm's later steps are less strict than alpha / number: then 0 is the bound.
            low, high = (max(low, 0.0), high) if one.value > 0 else (low, min(high, 0.0))
        found.append(Adjusted(p_adjusted, low, high, alpha))
    return found


@dataclass(frozen=True)
class SeedVariances:
    """Variance between the training runs of each method that was trained once per seed."""

    paired: Numbers
    """Variance of each method without the part that all methods of a seed share, shape (methods,).
    It applies to a difference of two methods that were trained with the same seeds."""
    paired_freedom: float
    alone: Numbers
    """Whole variance of each method, for a difference from a method with a single run."""
    alone_freedom: float


def seed_variances(values: Numbers, runs: Sequence[Hashable] | None = None) -> SeedVariances:
    """Estimate how much each method's score varies between training seeds.

    Three seeds alone say little about a method's variance, so the variances of all methods are
    pooled. A method that varies more than the pool keeps its own estimate: with the pooled variance
    alone, one method of 27 with four times the standard deviation gives a false difference in 23 %
    of studies, and with this rule in 6 % (`perf/inference.py`).

    Args:
      values: score of each training run, shape (seeds, methods); at least two seeds. Methods with
        equal scores are counted once, so leave the others out.
      runs: name of each method's training runs. Methods with equal names evaluate the same
        checkpoints, so together they have the weight and the degrees of freedom of one method.

    Source: Searle, Casella and McCulloch 1992, Variance Components, chapter 4; Satterthwaite 1946
    (Biometrics Bulletin 2, 110-114: degrees of freedom of a sum of two variances).
    """
    num_seeds, num_methods = values.shape
    assert num_seeds > 1, values.shape
    names: list[Hashable] = [*(range(num_methods) if runs is None else runs)]
    num_runs = len(set(names))
    weights = np.array([1 / names.count(name) for name in names]) / num_runs
    around = values - values.mean(axis=0)
    own = (around**2).sum(axis=0) / (num_seeds - 1)
    if num_runs == 1:
        own = np.maximum(own, own @ weights)
        return SeedVariances(own, num_seeds - 1, own, num_seeds - 1)
    shared = around @ weights
    rest = around - shared[:, None]
    freedom = (num_runs - 1) * (num_seeds - 1)
    single = (rest**2).sum(axis=0) / (num_seeds - 1) * num_runs / (num_runs - 1)
    pooled = float(single @ weights)
    # The whole variance of a run is that of its method and that of its seed.
    of_seed = num_runs * float((shared**2).sum()) / (num_seeds - 1)
    parts = (num_runs - 1) / num_runs * pooled, of_seed / num_runs
    whole = sum(parts)
    spread = parts[0] ** 2 / freedom + parts[1] ** 2 / (num_seeds - 1)
    return SeedVariances(
        np.maximum(pooled, single),
        freedom,
        np.maximum(whole, own),
        whole**2 / spread if spread else freedom,
    )


def skewness(values: Numbers) -> float:
    """Return the sample skewness of values (n,), corrected for small n; 0 for constant values."""
    around, number = values - values.mean(), values.size
    square = float((around**2).mean())
    if number < 3 or square == 0:
        return 0.0
    correction = math.sqrt(number * (number - 1)) / (number - 2)
    return float((around**3).mean() / square**1.5) * correction
