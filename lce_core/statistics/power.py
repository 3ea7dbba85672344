"""What a comparison could see: the smallest true difference that its test finds in 4 of 5 studies.

Known before anything is computed. Scores of 0 and 1 need the share of prompts on which two methods
disagree; means of documents, whose spread nobody knows yet, are told in standard deviations of the
documents' differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

from lce_core.errors import DataError

ALPHA = 0.05
POWER = 0.8
UNRELATED = 0.5
"""Share of prompts on which two methods disagree that answer half of them right, independently of
each other: no two equally good methods that agree by more than chance disagree on more."""
_LARGEST_EFFECT = 100.0
_UNLIKELY = 1e-9
_POINTS = 20_001


def mcnemar_power(
    num_prompts: int, difference: float, discordance: float = UNRELATED, *, alpha: float = ALPHA
) -> float:
    """Chance that the exact McNemar test finds a difference, over all outcomes.

    Args:
      num_prompts: independent prompts that both methods are asked.
      difference: of the two shares of right answers, of either sign.
      discordance: share of prompts that one method alone answers right; at least the difference.
      alpha: largest p-value that counts as a finding.

    Raises:
      DataError: no prompts, or shares that cannot be.

    Source: Connor 1987 (Biometrics 43, 207-211: the same sum by its normal approximation).
    """
    _possible("mcnemar_power", num_prompts, discordance, alpha)
    if not abs(difference) <= discordance:
        raise DataError(
            "difference",
            f"{difference} where methods disagree on {discordance} of the prompts",
            "a difference that these prompts can make",
            "give a smaller difference or a larger discordance",
        )
    first, last = stats.binom.ppf([_UNLIKELY, 1 - _UNLIKELY], num_prompts, discordance)
    discordant = np.arange(int(first), int(last) + 1)
    critical = stats.binom.ppf(alpha / 2, discordant, 0.5)
    critical -= stats.binom.cdf(critical, discordant, 0.5) > alpha / 2
    share = (discordance + difference) / (2 * discordance)
    found = stats.binom.cdf(critical, discordant, share)
    found += stats.binom.sf(discordant - critical - 1, discordant, share)
    return float(stats.binom.pmf(discordant, num_prompts, discordance) @ found)


def detectable_share(
    num_prompts: int,
    discordance: float = UNRELATED,
    *,
    alpha: float = ALPHA,
    power: float = POWER,
) -> float | None:
    """Smallest difference of two shares that McNemar's test finds with chance `power`.

    None where even a method that loses every disagreement is found out less often.

    Raises:
      DataError: no prompts, or shares that cannot be.
    """
    _possible("detectable_share", num_prompts, discordance, alpha, power)
    return _smallest(
        lambda gap: mcnemar_power(num_prompts, gap, discordance, alpha=alpha), discordance, power
    )


def mean_power(num_clusters: int, effect: float, *, alpha: float = ALPHA) -> float:
    """Chance that a t-test over clusters finds a difference of means.

    Args:
      num_clusters: documents, each with a difference.
      effect: mean over standard deviation of the documents' differences.
      alpha: largest p-value that counts as a finding.

    Raises:
      DataError: fewer than two documents, or an alpha that is no share.

    Source: Cohen 1988, Statistical Power Analysis, chapter 2 (paired case, noncentral t). For
    normally distributed differences Wilcoxon's test takes 5 % more documents.
    """
    _possible("mean_power", num_clusters - 1, alpha)
    freedom, shift = num_clusters - 1, abs(effect) * math.sqrt(num_clusters)
    # scipy's noncentral t is NaN at some shifts: its mean over the estimated deviation, instead.
    first, last = stats.chi.ppf([_UNLIKELY, 1 - _UNLIKELY], freedom)
    deviations = np.linspace(float(first), float(last), _POINTS)
    limits = stats.t.isf(alpha / 2, freedom) * deviations / math.sqrt(freedom)
    found = stats.norm.sf(limits - shift) + stats.norm.cdf(-limits - shift)
    return float(np.trapezoid(stats.chi.pdf(deviations, freedom) * found, deviations))


def detectable_effect(
    num_clusters: int, *, alpha: float = ALPHA, power: float = POWER
) -> float | None:
    """Smallest effect (mean over standard deviation) that a t-test finds with chance `power`.

    None where documents are so few that Wilcoxon's test of `paired` never finds any: its p-value is
    2 / 2^n or more. Of a few more than that it needs larger effects than a t-test.

    Raises:
      DataError: fewer than two documents, or shares that are none.
    """
    _possible("detectable_effect", num_clusters - 1, alpha, power)
    if 2.0 ** (1 - num_clusters) > alpha:
        return None
    return _smallest(
        lambda effect: mean_power(num_clusters, effect, alpha=alpha), _LARGEST_EFFECT, power
    )


def detectable_difference(
    errors: ArrayLike,
    num_clusters: int,
    *,
    alpha: float = ALPHA,
    discordance: ArrayLike | None = None,
) -> NDArray[np.float64] | None:
    """Smallest differences that comparisons which have been made would find in 4 of 5 studies.

    Of shares, methods disagree at least as often as they differ: where they agreed on every prompt,
    a larger difference would have been seen all the same. For prompts by themselves it is the
    normal approximation of `detectable_share`.

    Args:
      errors: standard error of each difference (n,).
      num_clusters: documents or prompts of each.
      alpha: largest p-value that counts as a finding.
      discordance: of scores of 0 and 1, share of prompts on which the methods disagreed (n,).

    Returns:
      In the unit of the errors (n,); NaN where all differences were 0 and the scores are no shares.
      None where no difference could be found, as `detectable_effect`.

    Raises:
      DataError: fewer than two documents, or an alpha that is no share.
    """
    effect = _effect(num_clusters, alpha)
    if effect is None:
        return None
    spread, far = np.asarray(errors, dtype=np.float64), effect * math.sqrt(num_clusters)
    if discordance is None:
        return np.where(spread > 0, far * spread, np.nan)
    square, share = far**2 / num_clusters, np.asarray(discordance, dtype=np.float64)
    # far * sqrt((discordance - d^2) / n) = d; with the discordance d itself, where d is larger.
    seen = np.sqrt(square * share / (1 + square))
    never = square / (1 + square)
    return np.asarray(np.maximum(np.where(seen >= share, never, seen), far * spread))


@cache
def _effect(num_clusters: int, alpha: float) -> float | None:
    return detectable_effect(num_clusters, alpha=alpha)


def _smallest(chance: Callable[[float], float], largest: float, power: float) -> float | None:
    """Where `chance`, which grows, reaches `power`; None if not up to `largest`."""
    if chance(largest) < power:
        return None
    if chance(0.0) >= power:
        return 0.0
    return float(optimize.brentq(lambda size: chance(size) - power, 0.0, largest, xtol=1e-6))


def _possible(where: str, number: int, *shares: float) -> None:
    if number < 1 or not all(0 < share < 1 for share in shares):
        raise DataError(
            where,
            f"{number} and shares {', '.join(map(str, shares))}",
            "at least one comparison, and shares between 0 and 1",
            "give numbers of prompts or documents, and shares instead of per cent",
        )
