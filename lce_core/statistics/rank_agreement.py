"""Agreement of two scores, such as perplexity and accuracy, on the order of methods."""

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
"""Minimum number of methods for an interval. With fewer, the variance of Kendall's correlation is
undefined, and identical orders occur by chance in at least 1 of 12 studies."""


@dataclass(frozen=True)
class RankCorrelation:
    """Correlation from -1 (opposite orders) to 1 (same order), with a 95 % interval.

    The interval generalises to other methods of the same kind.
    """

    value: float | None
    """Correlation; None if one of the two scores is the same for all methods."""
    low: float | None
    high: float | None
    """Upper bound. `low` and `high` are None with fewer than `FEWEST_METHODS` methods or without a
    value."""


@dataclass(frozen=True)
class RankAgreement:
    """Rank correlations of two scores of the same methods: 1 if both scores rank them equally."""

    num_methods: int
    spearman: RankCorrelation
    kendall: RankCorrelation
    """Kendall's tau-b."""
    p_value: float | None
    """Two-sided p-value, by Kendall's test, of the hypothesis that the scores are unrelated; None
    if one score is the same for all methods."""


@dataclass(frozen=True)
class PerplexityAgreement:
    """How well low perplexity predicts good downstream scores of methods, at one context length."""

    all_methods: RankAgreement
    exact_methods: RankAgreement
    """Agreement over methods whose tokens attend to every earlier token. Approximate methods can
    have low perplexity without reading the context, which hides how well perplexity predicts the
    scores of exact methods."""


def perplexity_agreement(
    perplexity: ArrayLike, downstream: ArrayLike, exact_attention: Sequence[bool]
) -> PerplexityAgreement:
    """Compute the rank agreement of perplexity and a downstream score.

    One result covers all methods, the other one only methods with exact attention.

    Args:
      perplexity: one per method (n,), lower is better.
      downstream: score of the same methods (n,), higher is better.
      exact_attention: True for methods with exact attention (n,).

    Source: LCEG (arXiv:2409.12181, Figure 4: perplexity against Needle, LongBench and RULER).
    """
    losses, scores = finite("perplexity", perplexity), finite("downstream", downstream)
    same_length("perplexity_agreement", losses.tolist(), scores.tolist())
    same_length("exact_attention", losses.tolist(), exact_attention)
    exact = np.asarray(exact_attention, dtype=bool)
    return PerplexityAgreement(
        rank_agreement(-losses, scores), rank_agreement(-losses[exact], scores[exact])
    )


def rank_agreement(first: NDArray[np.float64], second: NDArray[np.float64]) -> RankAgreement:
    """Compute Spearman's and Kendall's correlation of two scores of the same methods (n,).

    The intervals treat the methods as a sample of more methods and their scores as known. They use
    Fisher's z. A perfect correlation is replaced by one half a step below it for z, and its
    interval ends at 1.

    Source: Bonett and Wright 2000 (Psychometrika 65, 23-28: variance of Spearman's z); Fieller,
    Hartley and Pearson 1957 (Biometrika 44, 470-481: of Kendall's).
    """
    number = first.size
    if number < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        unknown = RankCorrelation(None, None, None)
        return RankAgreement(number, unknown, unknown, None)
    found = stats.kendalltau(first, second)
    # Round, so that equal orders give exactly 1.
    rho, tau = (round(float(one.statistic), 12) for one in (stats.spearmanr(first, second), found))
    if number < FEWEST_METHODS:
        of_ranks, of_pairs = (RankCorrelation(one, None, None) for one in (rho, tau))
        return RankAgreement(number, of_ranks, of_pairs, float(found.pvalue))
    # Half steps: rho can change by 12 / (n (n^2 - 1)), tau by 4 / (n (n - 1)). Variances of
    # Fisher's z: Bonett and Wright's for rho, Fieller, Hartley and Pearson's for tau.
    return RankAgreement(
        number,
        _estimated(rho, 6 / (number * (number**2 - 1)), (1 + rho**2 / 2) / (number - 3)),
        _estimated(tau, 2 / (number * (number - 1)), 0.437 / (number - 4)),
        float(found.pvalue),
    )


def _estimated(value: float, half_step: float, variance: float) -> RankCorrelation:
    """Return a correlation with its interval; `variance` is the variance of Fisher's z."""
    inner = min(max(value, half_step - 1), 1 - half_step)
    half = NORMAL_QUANTILE * math.sqrt(variance)
    low, high = (math.tanh(math.atanh(inner) + shift) for shift in (-half, half))
    return RankCorrelation(
        value, low if value > half_step - 1 else -1.0, high if value < 1 - half_step else 1.0
    )
