"""Smallest detectable differences by the number of training seeds and of prompts.

Before a study has results, its variances are assumptions: two methods disagree on half of the
prompts, and their difference varies between training seeds in a given ratio to its standard error
over the prompts of one seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from lce_core.statistics.contrasts import Contrast
from lce_core.statistics.power import UNRELATED, detectable_effect, detectable_share


@dataclass(frozen=True)
class Design:
    """A comparison of two methods, as a study plans it for one seed."""

    num_prompts: int
    """Number of independent prompts or documents of one seed."""
    is_share: bool
    """True if scores are right or wrong; otherwise differences are in standard deviations."""
    seeded: bool
    """True if each seed has its own prompts."""
    num_trained: int
    """Number of methods of the study that are trained once per seed; 0 if neither of the two is."""


@cache
def detectable_difference(
    design: Design, num_seeds: int, times: int, alpha: float, ratio: float = 1.0
) -> float | None:
    """Return the smallest difference that a test detects with 80 % power; None if it detects none.

    With one seed, the result holds for these checkpoints only.

    Args:
      design: the comparison, as the study plans it.
      num_seeds: number of training seeds.
      times: prompts of one seed, as a multiple of `design.num_prompts`.
      alpha: largest p-value that counts as a finding.
      ratio: standard deviation of the difference between training seeds, divided by its standard
        error over `design.num_prompts` prompts.
    """
    number = design.num_prompts * times
    if number < 2:
        return None
    if num_seeds == 1 or not design.num_trained:
        number *= num_seeds if design.seeded else 1
        find = detectable_share if design.is_share else detectable_effect
        return find(number, alpha=alpha)
    deviation = math.sqrt(UNRELATED) if design.is_share else 1.0
    of_prompts = deviation / math.sqrt(number)
    of_seeds = ratio * deviation / math.sqrt(design.num_prompts)
    error = math.hypot(of_seeds, of_prompts) if design.seeded else of_seeds
    contrast = Contrast(
        0.0,
        number,
        cluster_error=0.0 if design.seeded else of_prompts,
        seed_error=error / math.sqrt(num_seeds),
        seed_freedom=max(1, design.num_trained - 1) * (num_seeds - 1),
        num_seeds=num_seeds,
        is_crossed=not design.seeded,
    )
    found = contrast.detectable(alpha)
    return None if design.is_share and (found or 0.0) > UNRELATED else found
