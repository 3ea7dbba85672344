"""P-values and levels, and power: the smallest true difference that 4 of 5 studies detect.

Power can be computed before any score. For scores of 0 and 1 it depends on the fraction of prompts
on which two methods disagree. For document means it is in standard deviations of their differences.
"""

import bisect
import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from lce_core.statistics.estimates import finite

ALPHA = 0.05
POWER = 0.8
UNRELATED = 0.5
"""Fraction of prompts that exactly one of two independent methods answers right, if each answers
half of the prompts right; equally good methods with correlated answers disagree on fewer."""
MOST_NEEDED = 10_000
_LARGEST_SHIFT = 1e4
_UNLIKELY = 1e-9
_POINTS = 20_001


def mcnemar_power(
    num_prompts: int, difference: float, discordance: float = UNRELATED, *, alpha: float = ALPHA
) -> float:
    """Return the probability that the exact McNemar test finds this true difference significant.

    `difference` is one of two fractions of right answers; exactly one method answers the fraction
    `discordance` of the prompts right. `alpha` is the largest p-value of a finding. Source: Connor
    1987 (Biometrics 43, 207-211), there by a normal approximation.
    """
    assert abs(difference) <= discordance, (difference, discordance)
    # Sum over the number of discordant prompts; outcomes less likely than 1e-9 are left out. For
    # each, `critical` is the largest count of prompts won by one method that the test still
    # rejects.
    first, last = stats.binom.ppf([_UNLIKELY, 1 - _UNLIKELY], num_prompts, discordance)
    discordant = np.arange(int(first), int(last) + 1)
    critical = stats.binom.ppf(alpha / 2, discordant, 0.5)
    critical -= stats.binom.cdf(critical, discordant, 0.5) > alpha / 2
    share = (discordance + difference) / (2 * discordance)
    found = stats.binom.cdf(critical, discordant, share)
    found += stats.binom.sf(discordant - critical - 1, discordant, share)
    return float(stats.binom.pmf(discordant, num_prompts, discordance) @ found)


def detectable_share(
    num_prompts: int, discordance: float = UNRELATED, *, alpha: float = ALPHA
) -> float | None:
    """Return the smallest difference of fractions that McNemar's test detects, if there is any."""
    return _smallest(
        lambda gap: mcnemar_power(num_prompts, gap, discordance, alpha=alpha), discordance
    )


def mean_power(num_clusters: int, effect: float, *, alpha: float = ALPHA) -> float:
    """Return the probability that a t-test over documents finds this true effect significant.

    `effect` is mean over standard deviation of the documents' differences. Source: Cohen 1988,
    Statistical Power Analysis, chapter 2 (paired case, noncentral t).
    """
    return _t_power(abs(effect) * math.sqrt(num_clusters), num_clusters - 1, alpha)


def _t_power(shift: float, freedom: float, alpha: float) -> float:
    # scipy's noncentral t is NaN for some shifts. Integrate the normal probability over the
    # distribution of the estimated standard deviation instead.
    first, last = stats.chi.ppf([_UNLIKELY, 1 - _UNLIKELY], freedom)
    deviations = np.linspace(float(first), float(last), _POINTS)
    limits = stats.t.isf(alpha / 2, freedom) * deviations / math.sqrt(freedom)
    found = stats.norm.sf(limits - shift) + stats.norm.cdf(-limits - shift)
    return float(np.trapezoid(stats.chi.pdf(deviations, freedom) * found, deviations))


def detectable_effect(num_clusters: int, *, alpha: float = ALPHA) -> float | None:
    """Return the smallest `effect` of `mean_power` that a t-test detects."""
    shift = detectable_shift(num_clusters - 1, alpha)
    return None if shift is None else shift / math.sqrt(num_clusters)


@cache
def detectable_shift(freedom: float, alpha: float = ALPHA) -> float | None:
    """Return the smallest mean, in standard errors, that a t-test detects; None above 10,000."""
    return _smallest(lambda shift: _t_power(shift, freedom, alpha), _LARGEST_SHIFT)


def approximate_shift(freedom: float, alpha: float = ALPHA) -> float | None:
    """Approximate `detectable_shift` by `approximate_power`: catalogs need thousands of them."""
    if freedom < 3:
        return detectable_shift(round(freedom, 1), alpha)
    limit = -float(special.stdtrit(freedom, alpha / 2))
    scale = math.sqrt(1 + limit**2 / (2 * freedom))
    return limit * (1 - 1 / (4 * freedom)) + float(special.ndtri(POWER)) * scale


def detectable_fraction(shift: float, num_prompts: int, discordance: float) -> float:
    """Return the smallest difference of two fractions that is `shift` standard errors from 0.

    The normal approximation of `detectable_share`, positive even if methods always agreed.
    """
    # Solve shift * sqrt((discordance - d^2) / n) = d for d. If d exceeds the discordance, solve
    # again with the discordance set to d.
    square = shift**2 / num_prompts
    seen = math.sqrt(square * discordance / (1 + square))
    return square / (1 + square) if seen >= discordance else seen


def approximate_power(shift: float, freedom: float, alpha: float = ALPHA) -> float:
    """Approximate the probability that a t-test finds a difference in the direction of its mean.

    Faster than `mean_power`, with an error of at most 0.03 from three degrees of freedom on.
    `shift` is the true mean in standard errors. Source: Abramowitz and Stegun, equation 26.7.10.
    """
    limit = -float(special.stdtrit(freedom, alpha / 2))
    scale = math.sqrt(1 + limit**2 / (2 * freedom))
    return float(special.ndtr((shift - limit * (1 - 1 / (4 * freedom))) / scale))


def fewest(suffices: Callable[[int], bool], first: int) -> int | None:
    """Return the smallest number from `first` on that suffices, as all larger must; or None."""
    if first > MOST_NEEDED or not suffices(MOST_NEEDED):
        return None
    numbers = range(first, MOST_NEEDED + 1)
    return numbers[bisect.bisect_left(numbers, True, key=suffices)]


def _smallest(chance: Callable[[float], float], largest: float) -> float | None:
    """Return the smallest x in [0, `largest`] with `chance`(x) >= `POWER`; None if none exists."""
    if chance(largest) < POWER:
        return None
    if chance(0.0) >= POWER:
        return 0.0
    return float(optimize.brentq(lambda size: chance(size) - POWER, 0.0, largest, xtol=1e-6))


@lru_cache(maxsize=4096)
def exact_mcnemar(num_first_only: int, num_second_only: int) -> float:
    """Return the two-sided p-value of the hypothesis that both methods are right equally often.

    The arguments count independent prompts that only one method answers right. Source: McNemar 1947
    (Psychometrika 12, 153-157), without its normal approximation.
    """
    num_prompts = num_first_only + num_second_only
    if not num_prompts:
        return 1.0
    return float(stats.binomtest(num_first_only, num_prompts, 0.5).pvalue)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return the Holm-adjusted p-values of a family of comparisons (n,), in the same order.

    Source: Holm 1979 (Scandinavian Journal of Statistics 6, 65-70).
    """
    raw = finite(p_values)
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
