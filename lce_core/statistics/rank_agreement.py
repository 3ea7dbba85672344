"""Agreement of two scores, such as perplexity and accuracy, on the order of methods."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from lce_core.statistics.estimates import NORMAL_QUANTILE, cluster_numbers, finite

FEWEST_METHODS = 5
"""Minimum number of methods for an interval: below, the variance of Kendall's correlation is
undefined, and identical orders occur by chance in at least 1 of 12 studies."""
FEWEST_FAMILIES = 4
"""Minimum number of method families for an interval and a test."""
_TESTS = (stats.spearmanr, stats.kendalltau)


@dataclass(frozen=True)
class RankCorrelation:
    """Correlation from -1 (opposite orders) to 1 (same order), with a 95 % interval.

    The interval generalises to other families of methods of the same kind.
    """

    value: float | None
    """Correlation; None if one of the two scores is the same for all methods."""
    low: float | None
    high: float | None
    """The upper end. Both ends are None if there are too few methods or families, or no value."""


@dataclass(frozen=True)
class RankAgreement:
    """Rank correlations of two scores of the same methods: 1 if both scores rank them equally."""

    num_methods: int
    spearman: RankCorrelation
    kendall: RankCorrelation
    """Kendall's tau-b."""
    p_value: float | None
    """Two-sided p-value of the hypothesis that the scores are unrelated, by Kendall's test or, if
    larger, by the jackknife over families; None as for `high`."""


def perplexity_agreement(
    perplexity: ArrayLike,
    downstream: ArrayLike,
    exact_attention: Sequence[bool],
    families: Sequence[Hashable] | None = None,
) -> tuple[RankAgreement, RankAgreement]:
    """Compute the rank agreement of low perplexity and high downstream scores at one length.

    Arguments have an element for each method (n,). The first result is over all methods, the second
    over those whose tokens attend to every earlier token: approximate methods can have low
    perplexity without reading the context. Source: LCEG (arXiv:2409.12181, Figure 4).
    """
    losses, scores = finite(perplexity), finite(downstream)
    assert losses.size == scores.size == len(exact_attention), "one element for each method"
    exact = np.asarray(exact_attention, dtype=bool)
    names = cluster_numbers(families, losses)
    return (
        rank_agreement(-losses, scores, names),
        rank_agreement(-losses[exact], scores[exact], names[exact]),
    )


def rank_agreement(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    families: NDArray[np.int64] | None = None,
) -> RankAgreement:
    """Compute Spearman's and Kendall's correlation of two scores of the same methods (n,).

    The intervals treat the methods as a sample of more methods and their scores as known. They use
    Fisher's z. A perfect correlation is replaced by one half a step below it for z, and its
    interval ends at 1.

    Methods of one family (number, (n,); None makes every method its own family) resemble each
    other. Intervals and p-values are therefore at least those of a jackknife that leaves out one
    family at a time. Without it, unrelated scores of 27 methods in five families appear related in
    up to 39 % of studies.

    Source: Bonett and Wright 2000 (Psychometrika 65, 23-28: variance of Spearman's z); Fieller,
    Hartley and Pearson 1957 (Biometrika 44, 470-481: of Kendall's); Busing, Meijer and van der
    Leeden 1999 (Statistics and Computing 9, 3-8: jackknife of unequal groups).
    """
    number = first.size
    if number < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        unknown = RankCorrelation(None, None, None)
        return RankAgreement(number, unknown, unknown, None)
    p_value = float(stats.kendalltau(first, second).pvalue)
    rho, tau = (_correlation(test, first, second) for test in _TESTS)
    groups = np.arange(number) if families is None else np.unique(families, return_inverse=True)[1]
    num_families = int(groups.max()) + 1
    if number < FEWEST_METHODS or num_families < FEWEST_FAMILIES:
        of_ranks, of_pairs = (RankCorrelation(one, None, None) for one in (rho, tau))
        few = num_families < min(number, FEWEST_FAMILIES)
        return RankAgreement(number, of_ranks, of_pairs, None if few else p_value)
    errors = [0.0, 0.0]
    if num_families < number:
        errors = [_family_error(test, first, second, groups) for test in _TESTS]
        if errors[1]:
            by_family = 2 * float(stats.t.sf(abs(tau) / errors[1], num_families - 1))
            p_value = max(p_value, by_family)
    quantile = float(special.stdtrit(num_families - 1, 0.975))
    # Half steps: rho can change by 12 / (n (n^2 - 1)), tau by 4 / (n (n - 1)). Variances of
    # Fisher's z: Bonett and Wright's for rho, Fieller, Hartley and Pearson's for tau.
    return RankAgreement(
        number,
        _estimated(
            rho,
            6 / (number * (number**2 - 1)),
            (1 + rho**2 / 2) / (number - 3),
            quantile * errors[0],
        ),
        _estimated(tau, 2 / (number * (number - 1)), 0.437 / (number - 4), quantile * errors[1]),
        p_value,
    )


def _correlation(
    test: Callable[..., Any], first: NDArray[np.float64], second: NDArray[np.float64]
) -> float:
    return round(float(test(first, second).statistic), 12)  # equal orders give exactly 1


def _family_error(
    test: Callable[..., Any],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    groups: NDArray[np.int64],
) -> float:
    """Return a correlation's standard error by a jackknife over families of unequal size.

    A correlation that is undefined without a family counts as 0.
    """
    whole, squares = _correlation(test, first, second), []
    for group, size in enumerate(np.bincount(groups)):
        kept = groups != group
        varies = np.ptp(first[kept]) > 0 and np.ptp(second[kept]) > 0
        without = _correlation(test, first[kept], second[kept]) if varies else 0.0
        share = groups.size / size
        squares.append((share - 1) * (whole - without) ** 2)
    return math.sqrt(float(np.mean(squares)))


def _estimated(
    value: float, half_step: float, variance: float, family_half: float
) -> RankCorrelation:
    """Return a correlation with its interval; `half_step` is half its smallest change."""
    inner = min(max(value, half_step - 1), 1 - half_step)
    half = NORMAL_QUANTILE * math.sqrt(variance)
    low, high = (math.tanh(math.atanh(inner) + shift) for shift in (-half, half))
    return RankCorrelation(
        value,
        max(-1.0, min(low, value - family_half)) if value > half_step - 1 else -1.0,
        min(1.0, max(high, value + family_half)) if value < 1 - half_step else 1.0,
    )
