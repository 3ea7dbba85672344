"""Differences of two methods' means, with tests and intervals over training seeds and prompts.

A difference generalises to what its scores sample: other training seeds if the methods were trained
once per seed (and other prompts, if all seeds answered the same ones), otherwise other clusters,
which are documents or prompts that share none.

`adjust` corrects a registered family of contrasts for multiple comparisons, `explore` any number of
others. The spread over seeds is always that of the two methods compared: variances pooled over
methods give up to 43 % of null studies a false difference where methods vary unequally, or react
alike to a seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from lce_core.statistics.power import (
    ALPHA,
    POWER,
    approximate_power,
    approximate_shift,
    detectable_fraction,
    exact_mcnemar,
    fewest,
    holm,
)
from lce_core.statistics.sign_flips import Differences, critical_value, step_down

FEWEST_CLUSTERS = 6
"""Fewest clusters of a 95 % interval: five lie on one side of the true mean in 6 % of studies."""
_LOG_SMALLEST = -100.0
"""Smallest base-10 logarithm of a p-value; smaller ones are reported as this. Beyond 1e-120 some of
scipy's t quantiles are NaN (scipy 1.17)."""


@dataclass(frozen=True)
class Contrast:
    """A difference of two means and what its uncertainty consists of.

    Source of the two-part interval: Banerjee 1960 (Sankhya 22, 357-358), which gives each part of a
    variance its own t quantile. With clusters alone, the larger p-value of Student's t, better for
    few clusters, and of Hall's transformation counts, which removes the effect of skewness: Hall
    1992 (Journal of the Royal Statistical Society B 54, 221-228).
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
    num_seeds: int = 1
    is_crossed: bool = False
    """True if the runs of all seeds answered the same clusters, so that these need to suffice."""
    cluster_freedom: float | None = None
    """Degrees of freedom of `cluster_error`; None: one less than there are clusters."""
    differences: Differences | None = field(default=None, compare=False)
    """Differences by cluster, with which `adjust` tests a family jointly if `seed_error` is 0."""
    discordant: tuple[int, int] | None = None
    """Number of prompts that only the first method, and that only the second method answers right.
    None unless prompts are independent and scores are 0 or 1."""

    def p_value(self, hypothesis: float = 0.0) -> float:
        """Return the two-sided p-value of the hypothesis that the true difference is this one."""
        gap = abs(self.value - hypothesis)
        if self.seed_error:
            return 1.0 if self._lacks_clusters() else self._two_part_p(gap)
        if self.discordant is not None:
            centre, error = self._agresti_min()
            normal = 2 * float(special.ndtr(-abs(centre - hypothesis) / error))
            exact = exact_mcnemar(*self.discordant) if hypothesis == 0 else 0.0
            return max(normal, exact)
        if not self.cluster_error:  # equal on all clusters: the sign test's p-value
            return 1.0 if gap == 0 else 2.0 ** (1 - self.num_clusters)
        student = (self.value - hypothesis) / self.cluster_error
        larger = min(abs(student), abs(self._hall(student)))
        found = 2 * float(special.stdtr(self.freedom, -larger))
        if self.num_clusters < FEWEST_CLUSTERS:  # too few to see whether they are normal
            return max(found, 2.0 ** (1 - self.num_clusters))
        return found

    def interval(self, alpha: float = ALPHA) -> tuple[float, float] | None:
        """Return the differences whose p-value is above `alpha`: an interval of level 1 - alpha.

        None below `FEWEST_CLUSTERS` clusters, unless seeds have prompts of their own.
        """
        if self.seed_error:
            if self._lacks_clusters():
                return None
            half = self._half(alpha)
            return self.value - half, self.value + half
        if self.num_clusters < FEWEST_CLUSTERS:
            return None
        if self.discordant is not None:
            centre, error = self._agresti_min()
            half = -float(special.ndtri(alpha / 2)) * error
            low, high = min(centre - half, self.value), max(centre + half, self.value)
            if exact_mcnemar(*self.discordant) > alpha:
                low, high = min(low, 0.0), max(high, 0.0)
            return max(low, -1.0), min(high, 1.0)
        quantile = -float(special.stdtrit(self.freedom, alpha / 2))
        upper = max(quantile, self._inverse_hall(quantile))
        lower = min(-quantile, self._inverse_hall(-quantile))
        return self.value - self.cluster_error * upper, self.value - self.cluster_error * lower

    def detectable(self, alpha: float = ALPHA) -> float | None:
        """Return the smallest true difference that 4 of 5 studies detect, if there is any."""
        if self.seed_error:
            if self._lacks_clusters():
                return None
            seeds = approximate_shift(self.seed_freedom, alpha)
            prompts = approximate_shift(self.num_clusters - 1, alpha) if self.cluster_error else 0.0
            if seeds is None or prompts is None:
                return None
            return math.hypot(seeds * self.seed_error, prompts * self.cluster_error)
        if self.num_clusters < FEWEST_CLUSTERS:
            return None
        shift = approximate_shift(self.freedom, alpha)
        if shift is None or (self.discordant is None and not self.cluster_error):
            return None
        if self.discordant is None:
            return shift * self.cluster_error
        discordance = sum(self.discordant) / self.num_clusters
        return detectable_fraction(shift, self.num_clusters, discordance)

    def num_needed(self, alpha: float = ALPHA, bounds: Sequence[float] = (0.0,)) -> int | None:
        """Return how many seeds or clusters would decide, if the true difference were `value`.

        With this number, 4 of 5 studies find a difference on the same side of every bound (0, or
        margins) as `value`. It counts training seeds if `seed_error` is positive, else clusters.
        None above `MOST_NEEDED` or without a known spread.
        """
        if self._lacks_clusters() or (not self.seed_error and self.num_clusters < 2):
            return None
        gaps = [abs(self.value - bound) for bound in bounds]

        def suffices(number: int) -> bool:
            error, freedom = self._planned(number)
            if not self.seed_error and number < FEWEST_CLUSTERS:
                return False
            found = [
                approximate_power(gap / error, freedom, alpha) if error else float(gap > 0)
                for gap in gaps
            ]
            return sum(found) >= len(found) - 1 + POWER

        now = self.num_seeds if self.seed_error else self.num_clusters
        return fewest(suffices, now + 1)

    def _planned(self, number: int) -> tuple[float, float]:
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
        return replace(
            self,
            value=-self.value,
            skewness=-self.skewness,
            differences=None if self.differences is None else -self.differences,
            discordant=None if self.discordant is None else self.discordant[::-1],
        )

    @property
    def freedom(self) -> float:
        return self.num_clusters - 1 if self.cluster_freedom is None else self.cluster_freedom

    @property
    def error_of_prompts(self) -> float:
        """Standard error over clusters; positive even if all prompts are answered alike."""
        return self.cluster_error if self.discordant is None else self._agresti_min()[1]

    @property
    def is_joint(self) -> bool:
        return self.differences is not None and not self.seed_error

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

        Half an answer is added to each of the four outcomes, so that the width is positive.
        Source: Agresti and Min 2005 (Statistics in Medicine 24, 729-740).
        """
        assert self.discordant is not None
        wins, losses = self.discordant
        number, gap = self.num_clusters + 2, wins - losses
        return gap / number, math.sqrt(wins + losses + 1 - gap**2 / number) / number


@dataclass(frozen=True)
class Adjusted:
    """A contrast within its family of comparisons."""

    p_adjusted: float
    """P-value corrected for the size of the family; up to 0.05 it counts as a difference."""
    low: float | None
    """Lower bound of the 95 % interval. From `adjust` it includes 0 if `p_adjusted` is above 0.05,
    and else lies on one side of it. None, like `high`, if there are too few clusters."""
    high: float | None
    alpha: float
    """Probability of error of this interval alone."""


def adjust(
    family: Sequence[Contrast],
    levels: Sequence[float] | None = None,
    alpha: float = ALPHA,
    num_untested: int = 0,
) -> list[Adjusted]:
    """Correct a family of comparisons for their number.

    In at most `alpha` of studies the family has a false finding. Each interval agrees with its test
    and includes the true difference in at least 1 - `alpha` of studies; all together in fewer,
    because undecided comparisons are corrected only for the number of undecided ones.

    Comparisons over documents are tested jointly (`sign_flips`), those over training seeds by
    Holm's procedure, because two to five seeds do not show how comparisons depend on each other. If
    the family has both, each kind has its share of `alpha`.

    `levels` are those of the look at which each comparison is tested (`look_levels`), 0.05 without
    looks. `num_untested` comparisons of the family have no result yet.

    Source: Holm 1979 (Scandinavian Journal of Statistics 6, 65-70); Strassburger and Bretz 2008
    (Statistics in Medicine 27, 4914-4927: intervals that agree with it).
    """
    looks = [1.0] * len(family) if levels is None else [level / ALPHA for level in levels]
    joint = [number for number, one in enumerate(family) if one.is_joint]
    others = [number for number, one in enumerate(family) if not one.is_joint]
    size = len(family) + num_untested
    found: dict[int, Adjusted] = {}
    if joint:
        share = alpha * (len(joint) / size)
        differences = [one for it in joint if (one := family[it].differences)]
        tested = list(zip(joint, differences, step_down(differences), strict=True))
        # Standard errors by which intervals extend: decided differences get the critical value of
        # the whole family, undecided ones that of the undecided ones, which is not larger.
        undecided = [one for _, one, p_value in tested if p_value > share]
        whole = critical_value(differences, share)
        rest = critical_value(undecided, share) if undecided else whole
        for it, _, p_value in tested:
            limit, level = rest if p_value > share else whole, share * looks[it]
            each = min(level, 2 * float(special.stdtr(family[it].freedom, -limit)) * looks[it])
            found[it] = _adjusted(family[it], min(1.0, p_value * ALPHA / level), each)
    if others:
        share = alpha * ((size - len(joint)) / size)
        raw = [min(1.0, family[it].p_value() * ALPHA / (share * looks[it])) for it in others]
        p_values = holm([*raw, *[1.0] * num_untested]).tolist()
        num_undecided = sum(p_value > ALPHA for p_value in p_values)
        for it, p_value in zip(others, p_values, strict=False):
            among = len(p_values) if p_value <= ALPHA or not num_undecided else num_undecided
            found[it] = _adjusted(family[it], p_value, share * looks[it] / among)
    return [found[number] for number in range(len(family))]


def explore(comparisons: Sequence[Contrast], levels: Sequence[float]) -> list[Adjusted]:
    """Correct comparisons that nobody predicted so that few of the reported findings are false.

    Of the comparisons with a `p_adjusted` up to 0.05, at most 5 % are false on average. Intervals
    are those of each comparison alone. Source: Benjamini and Hochberg 1995 (Journal of the Royal
    Statistical Society B 57, 289-300).
    """
    if not comparisons:
        return []
    raw = [
        min(1.0, one.p_value() * ALPHA / level)
        for one, level in zip(comparisons, levels, strict=True)
    ]
    corrected = stats.false_discovery_control(raw).tolist()
    found = []
    for one, p_value, level in zip(comparisons, corrected, levels, strict=True):
        low, high = one.interval(level) or (None, None)
        found.append(Adjusted(p_value, low, high, level))
    return found


def _adjusted(one: Contrast, p_adjusted: float, alpha: float) -> Adjusted:
    bounds = one.interval(alpha)
    if bounds is None:
        return Adjusted(p_adjusted, None, None, alpha)
    low, high = bounds
    if p_adjusted > ALPHA:
        low, high = min(low, 0.0), max(high, 0.0)
    elif one.value > 0:
        low = max(low, 0.0)
    else:
        high = min(high, 0.0)
    return Adjusted(p_adjusted, low, high, alpha)


def skewness(values: NDArray[np.float64]) -> float:
    """Return the sample skewness of values (n,), corrected for small n; 0 for constant values."""
    around, number = values - values.mean(), values.size
    square = float((around**2).mean())
    if number < 3 or square == 0:
        return 0.0
    correction = math.sqrt(number * (number - 1)) / (number - 2)
    return float((around**3).mean() / square**1.5) * correction
