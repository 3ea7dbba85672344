"""Power of a comparison by the number of training seeds and of prompts.

Before a study has results, its variances are assumptions: two methods disagree on half of the
prompts, and their difference varies between training seeds in a given ratio to its standard error
over the prompts of one seed.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import stats

from lce_core.statistics.contrasts import FEWEST_CLUSTERS, Contrast
from lce_core.statistics.power import (
    UNRELATED,
    detectable_effect,
    detectable_share,
    mcnemar_power,
    mean_power,
)

_QUANTILES = (np.arange(100) + 0.5) / 100


@dataclass(frozen=True)
class Design:
    """A comparison of two methods, as a study plans it for one seed."""

    num_clusters: int
    """Number of independent prompts or documents of one seed, over all tasks."""
    num_prompts: int
    """Number of equally weighted prompts whose mean is as exact as that over the tasks."""
    is_share: bool
    """True if scores are right or wrong; otherwise differences are in standard deviations."""
    seeded: bool
    """True if each seed has its own prompts."""
    is_trained: bool
    """True if one of the methods is trained once per seed."""

    def missing(self, num_seeds: int, times: int, level: float) -> int:
        """Return how many documents are needed if the design has too few for any finding, else 0.

        The sign-flip test of n documents has no p-value below 2^(1 - n). It is not needed if seeds
        have prompts of their own.
        """
        by_seed = self._by_seed(num_seeds)
        if by_seed and self.seeded:
            return 0
        needed = FEWEST_CLUSTERS
        if not by_seed:
            needed = max(needed, math.ceil(1 - math.log2(level)))
            times *= num_seeds if self.seeded else 1
        return needed if self.num_clusters * times < needed else 0

    def probability(
        self, num_seeds: int, times: int, effect: float, alpha: float, ratio: float = 1.0
    ) -> float:
        """Return the probability that a test finds a true difference of this size.

        With one seed, the result holds for its checkpoints only. `times` multiplies the planned
        prompts of one seed. `effect` is a fraction if `is_share`, else in standard deviations over
        documents. `ratio` is the standard deviation of the difference between training seeds,
        divided by its standard error over the planned prompts of one seed.
        """
        if not self._by_seed(num_seeds):
            number = self._prompts_of_all(num_seeds, times)
            if self.is_share:
                return mcnemar_power(number, min(effect, UNRELATED), alpha=alpha)
            found = mean_power(number, effect, alpha=alpha)
            # With six documents, one of the 32 flips is a finding: all differences on one side.
            is_least = number == FEWEST_CLUSTERS
            return min(found, float(stats.norm.cdf(effect)) ** number) if is_least else found
        contrast = self._contrast(num_seeds, times, ratio)
        square = np.zeros((1, 1))
        for axis, error, freedom in (
            (0, contrast.seed_error, num_seeds - 1),
            (1, contrast.cluster_error, self.num_clusters * times - 1),
        ):
            if error:
                variance = stats.chi2.ppf(_QUANTILES, freedom) / freedom
                parts = (error * stats.t.isf(alpha / 2, freedom)) ** 2 * variance
                square = square + np.expand_dims(parts, 1 - axis)
        error = math.hypot(contrast.seed_error, contrast.cluster_error)
        half = np.sqrt(square)
        found = stats.norm.sf((half - effect) / error) + stats.norm.cdf((-half - effect) / error)
        return float(found.mean())

    def _by_seed(self, num_seeds: int) -> bool:
        return self.is_trained and num_seeds > 1

    def _prompts_of_all(self, num_seeds: int, times: int) -> int:
        return self.num_prompts * times * (num_seeds if self.seeded else 1)

    def _contrast(self, num_seeds: int, times: int, ratio: float) -> Contrast:
        deviation = math.sqrt(UNRELATED) if self.is_share else 1.0
        of_prompts = deviation / math.sqrt(self.num_prompts * times)
        of_seeds = ratio * deviation / math.sqrt(self.num_prompts)
        error = math.hypot(of_seeds, of_prompts) if self.seeded else of_seeds
        return Contrast(
            0.0,
            self.num_clusters * times,
            cluster_error=0.0 if self.seeded else of_prompts,
            seed_error=error / math.sqrt(num_seeds),
            seed_freedom=num_seeds - 1,
            num_seeds=num_seeds,
            is_crossed=not self.seeded,
        )


@cache
def detectable_difference(
    design: Design, num_seeds: int, times: int, alpha: float, ratio: float = 1.0
) -> float | None:
    """Return the smallest `effect` that `Design.probability` detects with 80 % power, or None."""
    if design.num_prompts * times < 2:
        return None
    if not design._by_seed(num_seeds):
        find = detectable_share if design.is_share else detectable_effect
        return find(design._prompts_of_all(num_seeds, times), alpha=alpha)
    found = design._contrast(num_seeds, times, ratio).detectable(alpha)
    return None if design.is_share and (found or 0.0) > UNRELATED else found
