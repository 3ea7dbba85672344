"""Whether two scores put methods into the same order, such as perplexity and accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from lce_core.statistics._checks import finite, same_length
from lce_core.statistics.estimates import NORMAL_QUANTILE

FEWEST_METHODS = 5
"""With fewer, the variance of Kendall's correlation is not defined, and the same order of all of
them comes about by chance in 1 of 12 studies or more."""


@dataclass(frozen=True)
class RankCorrelation:
    """From -1 (opposite orders) to 1 (the same), with a 95 % interval for methods of the kind."""

    value: float | None
    """None where a score is the same for all methods."""
    low: float | None
    high: float | None
    """None below `FEWEST_METHODS` methods, and where there is no value."""


@dataclass(frozen=True)
class RankAgreement:
    """Agreement of two orders of the same methods; better is better in both."""

    num_methods: int
    spearman: RankCorrelation
    kendall: RankCorrelation
    """tau-b."""
    p_value: float | None
    """Two-sided, of unrelated orders, by Kendall's: exact for methods without ties."""


@dataclass(frozen=True)
class PerplexityAgreement:
    """Whether methods of lower perplexity do better downstream, at one length."""

    all_methods: RankAgreement
    exact_methods: RankAgreement
    """Of methods whose tokens attend to every earlier one: approximate ones have low perplexity
    without reading the context, and hide how well it predicts the others."""


def perplexity_agreement(
    perplexity: ArrayLike, downstream: ArrayLike, exact_attention: Sequence[bool]
) -> PerplexityAgreement:
    """Agreement of perplexity with a downstream score, with and without approximate methods.

    Args:
      perplexity: of each method (n,), lower is better.
      downstream: of the same methods (n,), higher is better.
      exact_attention: whether a method's attention is exact (n,).

    Raises:
      DataError: no methods, not as many of each, or a score that is not finite.

    Source: LCEG (arXiv:2409.12181, Figure 4: perplexity against Needle, LongBench and RULER).
    """
    losses, scores = finite("perplexity", perplexity), finite("downstream", downstream)
    same_length("perplexity_agreement", losses.tolist(), scores.tolist())
    same_length("exact_attention", losses.tolist(), exact_attention)
    exact = np.asarray(exact_attention, dtype=bool)
    return PerplexityAgreement(
        rank_agreement(-losses, scores), _agreement(-losses[exact], scores[exact])
    )


def rank_agreement(first: ArrayLike, second: ArrayLike) -> RankAgreement:
    """Spearman's and Kendall's correlation of two scores of the same methods (n,).

    The intervals take the methods for a sample of more, and their scores for known. They are those
    of Fisher's z, a perfect correlation taken for one half a step below, and are closed by 1 there.

    Raises:
      DataError: no methods, not as many of each, or a score that is not finite.

    Source: Bonett and Wright 2000 (Psychometrika 65, 23-28: variance of Spearman's z); Fieller,
    Hartley and Pearson 1957 (Biometrika 44, 470-481: of Kendall's).
    """
    ours, theirs = finite("first", first), finite("second", second)
    same_length("rank_agreement", ours.tolist(), theirs.tolist())
    return _agreement(ours, theirs)


def _agreement(first: NDArray[np.float64], second: NDArray[np.float64]) -> RankAgreement:
    number = first.size
    if number < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        unknown = RankCorrelation(None, None, None)
        return RankAgreement(number, unknown, unknown, None)
    found = stats.kendalltau(first, second)
    # The same order is 1 and no rounding less.
    rho, tau = (round(float(one.statistic), 12) for one in (stats.spearmanr(first, second), found))
    if number < FEWEST_METHODS:
        of_ranks, of_pairs = (RankCorrelation(one, None, None) for one in (rho, tau))
        return RankAgreement(number, of_ranks, of_pairs, float(found.pvalue))
    return RankAgreement(
        number,
        _estimated(rho, 6 / (number * (number**2 - 1)), (1 + rho**2 / 2) / (number - 3)),
        _estimated(tau, 2 / (number * (number - 1)), 0.437 / (number - 4)),
        float(found.pvalue),
    )


def _estimated(value: float, half_step: float, variance: float) -> RankCorrelation:
    """With the interval of Fisher's z, of which `variance` is the variance."""
    inner = min(max(value, half_step - 1), 1 - half_step)
    half = NORMAL_QUANTILE * math.sqrt(variance)
    low, high = (math.tanh(math.atanh(inner) + shift) for shift in (-half, half))
    return RankCorrelation(
        value, low if value > half_step - 1 else -1.0, high if value < 1 - half_step else 1.0
    )
