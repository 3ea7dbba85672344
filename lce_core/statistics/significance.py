"""P-values and levels: McNemar's exact test, Holm's correction, and the levels of looks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from lce_core.statistics.estimates import finite
from lce_core.statistics.power import ALPHA


@lru_cache(maxsize=4096)
def exact_mcnemar(num_first_only: int, num_second_only: int) -> float:
    """Return the two-sided p-value of the hypothesis that both methods are right equally often.

    The arguments count independent prompts that only one method answers right. Under the hypothesis
    each favours either method with probability 1/2; without any, the p-value is 1. Source: McNemar
    1947 (Psychometrika 12, 153-157), without its normal approximation.
    """
    assert min(num_first_only, num_second_only) >= 0, (num_first_only, num_second_only)
    num_prompts = num_first_only + num_second_only
    if not num_prompts:
        return 1.0
    return float(stats.binomtest(num_first_only, num_prompts, 0.5).pvalue)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return the Holm-adjusted p-values of a family of comparisons (n,), in the same order.

    If every adjusted p-value up to 0.05 counts as a difference, at most 5 % of studies contain a
    false finding. Source: Holm 1979 (Scandinavian Journal of Statistics 6, 65-70).
    """
    raw = finite("holm", p_values)
    assert ((raw >= 0) & (raw <= 1)).all(), f"p-values from {raw.min():g} to {raw.max():g}"
    order = np.argsort(raw, kind="stable")
    steps = raw[order] * np.arange(raw.size, 0, -1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def look_levels(looks: Sequence[int]) -> list[float]:
    """Return the level of each look, given its number of seeds; the levels add up to 0.05.

    After the fraction t of the seeds, tests may have spent 2 - 2 Phi(1.96 / sqrt(t)) of the 0.05:
    almost nothing at the first look, most at the last one, as O'Brien and Fleming's boundaries do.

    These levels split the 0.05 as Bonferroni's correction does, so they hold for t tests, for any
    dependence between looks, and for any reason to stop adding seeds: `p * 0.05 / level` is a valid
    p-value at whichever look it is computed. Levels from the joint distribution of the looks would
    be slightly higher (at the last of three looks 0.044 instead of 0.034), but assume normal scores
    with known variances.

    Source: Lan and DeMets 1983 (Biometrika 70, 659-663).
    """
    quantile = -float(special.ndtri(ALPHA / 2))
    spent = [2 * float(special.ndtr(-quantile / math.sqrt(number / looks[-1]))) for number in looks]
    return [after - before for before, after in zip([0.0, *spent], spent, strict=False)]


def looks_in_words(looks: Sequence[int]) -> str:
    """Return, for example, "2, 4 and 6 seeds (levels 0.00069, 0.016, 0.034)"."""
    numbers = " and ".join(filter(None, (", ".join(map(str, looks[:-1])), str(looks[-1]))))
    return f"{numbers} seeds (levels {', '.join(f'{one:.2g}' for one in look_levels(looks))})"
