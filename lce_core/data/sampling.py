"""Per-source length upsampling: which documents a training set is made of, and in which order.

Long documents are always taken and short ones with a small probability, separately within each
domain until that domain has its share of the token budget; so long text is up-weighted while the
mixture of domains stays that of the corpus. Domains are interleaved evenly, so any prefix of the
order has the mixture too, as nearly as whole documents allow. What lies beyond the budget is not
part of the draw, nor of its statistics. Everything works on an index (domain and length of each
document) and follows from the seed. A corpus that is too small is gone through again in a new
order.

Source: Fu et al. 2024, arXiv:2402.10171, section 3; LCEG, arXiv:2409.12181, appendix 9.3. Here
the lengths are counted, not estimated from characters, and the shares are the corpus's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import DataError
from lce_core.recipe import Upsampling


@dataclass(frozen=True, eq=False)
class Draw:
    """Documents in training order, and how they came about.

    The last one may reach beyond the budget; statistics count its tokens up to there.
    """

    documents: NDArray[np.int64]
    """Indices into the corpus index; a document may occur again in a later pass."""
    passes: NDArray[np.int64]
    """Pass through its domain that each document was drawn in, from 0."""
    statistics: list[dict[str, Any]]
    """One entry a domain: tokens and documents that there are and that the budget holds, the share
    of either, and the passes begun."""


def draw_documents(
    domains: NDArray[np.integer[Any]],
    lengths: NDArray[np.integer[Any]],
    names: tuple[str, ...],
    *,
    budget: int,
    upsampling: Upsampling,
    seed: int,
) -> Draw:
    """Draws documents until `budget` tokens are reached in the corpus's own mixture.

    Args:
      domains: index into `names` for each document (documents,).
      lengths: tokens of each document (documents,), separators included.
      names: the domains.
      budget: tokens wanted.
      upsampling: what counts as long, and how often shorter documents are kept.
      seed: decides order and keeping.

    Raises:
      DataError: the corpus holds no tokens.
    """
    total = int(lengths.sum())
    if total == 0:
        raise DataError(
            "corpus",
            "no tokens in the training split",
            "text to train on",
            "add text, or lower the held-out share",
        )
    chosen, passes, places = [], [], []
    for domain in range(len(names)):
        members = np.flatnonzero((domains == domain) & (lengths > 0))
        share = int(lengths[members].sum()) / total
        wanted = int(np.ceil(budget * share))
        rng = np.random.default_rng([seed, domain])
        picked, picked_pass = _fill(members, lengths, wanted, upsampling, rng)
        ends = np.cumsum(lengths[picked], dtype=np.int64)
        chosen.append(picked)
        passes.append(picked_pass)
        # Each document stands where its middle lies in its domain, from 0 to 1.
        places.append((ends - lengths[picked] / 2) / max(wanted, 1))
    order = np.argsort(np.concatenate(places), kind="stable")
    documents, drawn_in = np.concatenate(chosen)[order], np.concatenate(passes)[order]
    sizes = lengths[documents].astype(np.int64)
    held = np.clip(budget - (np.cumsum(sizes) - sizes), 0, sizes)
    documents, drawn_in, held = (array[held > 0] for array in (documents, drawn_in, held))
    is_long = lengths >= upsampling.long_document_tokens
    statistics = []
    for domain, name in enumerate(names):
        there, drawn = domains == domain, domains[documents] == domain
        tokens, drawn_tokens = int(lengths[there].sum()), int(held[drawn].sum())
        statistics.append(
            {
                "domain": name,
                "documents": int((there & (lengths > 0)).sum()),
                "tokens": tokens,
                "share": tokens / total,
                "long_tokens": int(lengths[there & is_long].sum()),
                "drawn_documents": int(drawn.sum()),
                "drawn_tokens": drawn_tokens,
                "drawn_share": drawn_tokens / int(held.sum()),
                "drawn_long_tokens": int(held[drawn & is_long[documents]].sum()),
                "passes": int(drawn_in[drawn].max(initial=-1)) + 1,
            }
        )
    return Draw(documents, drawn_in, statistics)


def _fill(
    members: NDArray[np.int64],
    lengths: NDArray[np.integer[Any]],
    wanted: int,
    upsampling: Upsampling,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Documents of one domain until they hold `wanted` tokens, and the pass of each."""
    parts: list[NDArray[np.int64]] = []
    counts: list[int] = []
    tokens = 0
    while tokens < wanted and members.size:
        shuffled = rng.permutation(members)
        is_long = lengths[shuffled] >= upsampling.long_document_tokens
        kept = shuffled[is_long | (rng.random(shuffled.size) < upsampling.short_keep_rate)]
        if not kept.size:
            kept = shuffled[:1]  # a few short documents and a small rate must not loop for ever
        ends = tokens + np.cumsum(lengths[kept], dtype=np.int64)
        kept = kept[: int(np.searchsorted(ends, wanted)) + 1]
        tokens += int(lengths[kept].sum())
        parts.append(kept)
        counts.append(kept.size)
    if not parts:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return np.concatenate(parts), np.repeat(np.arange(len(parts)), counts)
