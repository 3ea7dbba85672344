"""Per-source length upsampling: choose and order the documents of a training set.

Within each domain, long documents are always kept and short ones with a small probability, until
the domain has its share of the token budget. Long text is therefore up-weighted while the mixture
of domains stays that of the corpus. Domains are interleaved evenly, so any prefix of the order has
the same mixture, as nearly as whole documents allow. Documents beyond the budget are excluded from
the draw and its statistics. Everything works on an index (domain and length of each document) and
depends on the seed. A corpus that is too small is used again in a new order.

Source: Fu et al. 2024, arXiv:2402.10171, section 3; LCEG, arXiv:2409.12181, appendix 9.3. Here
lengths are counted instead of estimated from characters, and the shares are those of the corpus
itself.
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
    """Documents in training order, and the statistics of the draw.

    The last document may extend beyond the budget; statistics count its tokens up to the budget.
    """

    documents: NDArray[np.int64]
    """Indices into the corpus index; a document may occur again in a later pass."""
    passes: NDArray[np.int64]
    """Pass through its domain in which each document was drawn, from 0."""
    statistics: list[dict[str, Any]]
    """One entry per domain: available and drawn tokens and documents, the domain's share of each
    token count, and the number of passes started."""


def draw_documents(
    domains: NDArray[np.integer[Any]],
    lengths: NDArray[np.integer[Any]],
    names: tuple[str, ...],
    *,
    budget: int,
    upsampling: Upsampling,
    seed: int,
) -> Draw:
    """Draw documents until `budget` tokens are reached, keeping the corpus's mixture of domains.

    Args:
      domains: index into `names` for each document (documents,).
      lengths: tokens of each document (documents,), separators included.
      names: names of the domains.
      budget: number of tokens to draw.
      upsampling: what counts as long, and how often shorter documents are kept.
      seed: determines the order and which short documents are kept.

    Raises:
      DataError: if the corpus holds no tokens.
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
        # Order key of a document: the position of its middle within its domain, from 0 to 1.
        places.append((ends - lengths[picked] / 2) / max(wanted, 1))
    order = np.argsort(np.concatenate(places), kind="stable")
    documents, drawn_in = np.concatenate(chosen)[order], np.concatenate(passes)[order]
    sizes = lengths[documents].astype(np.int64)
    # Tokens of each document within the budget; 0 for documents beyond it.
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
    """Draw documents of a domain until they hold `wanted` tokens; also return their passes."""
    parts: list[NDArray[np.int64]] = []
    counts: list[int] = []
    tokens = 0
    while tokens < wanted and members.size:
        shuffled = rng.permutation(members)
        is_long = lengths[shuffled] >= upsampling.long_document_tokens
        kept = shuffled[is_long | (rng.random(shuffled.size) < upsampling.short_keep_rate)]
        if not kept.size:
            # Keep one document, or a few short documents with a small keep rate could loop forever.
            kept = shuffled[:1]
        ends = tokens + np.cumsum(lengths[kept], dtype=np.int64)
        kept = kept[: int(np.searchsorted(ends, wanted)) + 1]
        tokens += int(lengths[kept].sum())
        parts.append(kept)
        counts.append(kept.size)
    if not parts:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return np.concatenate(parts), np.repeat(np.arange(len(parts)), counts)
