"""Levels of significance for studies that test their comparisons repeatedly, as seeds are added."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import special

from lce_core.statistics.power import ALPHA


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
