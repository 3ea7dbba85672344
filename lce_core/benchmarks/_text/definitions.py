"""Perplexity as four groups of papers define it, computed from the mean losses of text windows.

The definitions differ in the tokens of a window that they score and in how they average losses.
Intervals are a bootstrap over clusters of windows that overlap or belong to one document.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lce_core.statistics.estimates import Estimate, bootstrap_mean


@dataclass(frozen=True, eq=False)
class Scored:
    nll: NDArray[np.float64]
    """Mean NLL in nats of each window's scored tokens (windows,)."""
    tokens: NDArray[np.int64]
    """Number of scored tokens of each window (windows,)."""
    clusters: Sequence[Hashable]
    """Cluster of each window, such as its document; the bootstrap resamples whole clusters."""


def scored_means(nll: NDArray[np.floating], tokens: int) -> NDArray[np.float64]:
    """Return the mean of the last `tokens` losses of each window, (windows,)."""
    return np.asarray(nll[:, nll.shape[1] - tokens :].mean(axis=1, dtype=np.float64))


def over_windows(scored: Scored, base: float = math.e) -> Estimate:
    """Return base^(mean over windows of `nll`).

    LCEG and LongLoRA score all tokens of a window (arXiv:2409.12181, Tables 2, 5, 9, 10). YaRN's
    GovReport (arXiv:2309.00071, Table 8) scores only tokens that no earlier window has scored, so a
    first window with 32k scored tokens has the same weight as a later one with 256.
    """
    return _power(base, bootstrap_mean(scored.nll, clusters=scored.clusters))


def over_tokens(scored: Scored, base: float = math.e) -> Estimate:
    """Return base^(sum of tokens * nll / sum of tokens), as Press et al. (arXiv:2108.12409)."""
    mean = bootstrap_mean(scored.nll, weights=scored.tokens, clusters=scored.clusters)
    return _power(base, mean)


def over_documents(scored: Scored) -> Estimate:
    """Return the mean over documents, the clusters, of exp of each document's mean NLL.

    Source: Base of RoPE Bounds Context Length (arXiv:2405.14591).
    """
    return bootstrap_mean(np.exp(_cluster_means(scored)))


def over_document_losses(scored: Scored) -> Estimate:
    """Return exp of the mean over documents, the clusters, of each document's mean NLL.

    Source: YaRN's Proof-pile (arXiv:2309.00071, Tables 1, 5, 6, 7), on documents' first tokens.
    """
    return _power(math.e, bootstrap_mean(_cluster_means(scored)))


def _cluster_means(scored: Scored) -> NDArray[np.float64]:
    numbers: dict[Hashable, int] = {}
    index = [numbers.setdefault(cluster, len(numbers)) for cluster in scored.clusters]
    sums = np.bincount(index, weights=scored.nll * scored.tokens)
    return np.asarray(sums / np.bincount(index, weights=scored.tokens))


def _power(base: float, nll: Estimate) -> Estimate:
    low, high = (None if bound is None else base**bound for bound in (nll.low, nll.high))
    return Estimate(base**nll.value, low, high, nll.num_samples)
