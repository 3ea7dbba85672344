"""Per-source length upsampling: choose and order the documents of a training set.

Within each domain, long documents are always kept and short ones with a small probability, until
the domain has its share of the token budget. Long text is therefore up-weighted, while the fraction
of tokens from each domain stays that of the corpus, for a small budget too, because the last
document of each domain is cut where its share ends. Domains are interleaved evenly, so the first
part of the order has the same fractions, as nearly as whole documents allow. A domain that is too
small is drawn again, in a new order.

A study can set the shares of the domains, and the share of long documents within each domain. Long
and short documents are then drawn like two domains. OLMo 3 extended its context with 34 % of long
documents (arXiv:2512.13961).

Source: Fu et al. 2024, arXiv:2402.10171, section 3; LCEG, arXiv:2409.12181, appendix 9.3. Unlike
there, lengths are counted in tokens instead of estimated from characters, and the domains' shares
are those of the corpus.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import DataError
from lce_core.recipe import Upsampling


@dataclass(frozen=True, eq=False)
class Draw:
    """Documents in training order, and the statistics of the draw."""

    documents: NDArray[np.int64]
    """Indices of documents in the corpus; an index occurs several times if its domain was drawn
    several times."""
    tokens: NDArray[np.int64]
    """Number of tokens taken from the start of each document; their sum is the budget."""
    passes: NDArray[np.int64]
    """Pass through the domain (0, 1, ...) in which each document was drawn."""
    statistics: list[dict[str, Any]]
    """One entry per domain: tokens and documents available and drawn, shares, and passes."""


def draw_documents(
    domains: NDArray[np.integer[Any]],
    lengths: NDArray[np.integer[Any]],
    names: tuple[str, ...],
    *,
    budget: int,
    upsampling: Upsampling,
    seed: int,
) -> Draw:
    """Draw documents with `budget` tokens, in the shares of `upsampling` to the token.

    `domains` has the index into `names` of each document (documents,), `lengths` its tokens with
    separators (documents,).
    """
    total = int(lengths.sum())
    if total == 0:
        raise DataError(
            "corpus",
            "no tokens in the training split",
            "text to train on",
            "add text that no held-out document has, or lower held_out_percent",
        )
    in_domain = [domains == domain for domain in range(len(names))]
    available = [int(lengths[there].sum()) for there in in_domain]
    is_long = lengths >= upsampling.long_document_tokens
    keep_rate = upsampling.short_keep_rate if upsampling.long_share is None else 1.0
    drawn_parts = []
    parts = _parts(in_domain, is_long, names, available, budget, upsampling)
    for name, there, wanted, number in parts:
        members = np.flatnonzero(there & (lengths > 0))
        rng = np.random.default_rng([seed, *number])
        if wanted and not members.size:
            raise DataError(
                "corpus",
                f"no {name} in the training split",
                f"text for {wanted:,} tokens of them",
                "change `long_share`, `long_document_tokens` or `domain_shares` in `upsampling`",
            )
        picked, picked_pass = _fill(members, lengths, wanted, is_long, keep_rate, rng)
        ends = np.minimum(np.cumsum(lengths[picked], dtype=np.int64), wanted)
        tokens = np.diff(ends, prepend=0)
        # The position of a document's middle within its domain, from 0 to 1.
        middles = (ends - tokens / 2) / max(wanted, 1)
        drawn_parts.append((middles, picked, tokens, picked_pass))
    keys, *columns = map(np.concatenate, zip(*drawn_parts, strict=True))
    order = np.argsort(keys, kind="stable")
    documents, tokens, drawn_in = (column[order] for column in columns)
    statistics = []
    for domain, name in enumerate(names):
        there, drawn = in_domain[domain], domains[documents] == domain
        drawn_tokens = int(tokens[drawn].sum())
        statistics.append(
            {
                "domain": name,
                "documents": int((there & (lengths > 0)).sum()),
                "tokens": available[domain],
                "share": available[domain] / total,
                "long_tokens": int(lengths[there & is_long].sum()),
                "drawn_documents": int(drawn.sum()),
                "drawn_tokens": drawn_tokens,
                "drawn_share": drawn_tokens / budget,
                "drawn_long_tokens": int(tokens[drawn & is_long[documents]].sum()),
                "passes": int(drawn_in[drawn].max(initial=-1)) + 1,
            }
        )
    return Draw(documents, tokens, drawn_in, statistics)


def _parts(
    in_domain: list[NDArray[np.bool_]],
    is_long: NDArray[np.bool_],
    names: tuple[str, ...],
    available: list[int],
    budget: int,
    upsampling: Upsampling,
) -> Iterator[tuple[str, NDArray[np.bool_], int, tuple[int, ...]]]:
    """Yield each domain, or its long and its short documents, as a part of the draw.

    A part has a name, a mask of its documents (documents,), its number of tokens, and its numbers
    in the seed.
    """
    weights = available
    if (given := upsampling.domain_shares) is not None:
        weights = _whole([given.get(name, 0.0) for name in names])
    for domain, tokens in enumerate(_shares(weights, budget)):
        name, there = f"documents of {names[domain]}", in_domain[domain]
        if upsampling.long_share is None:
            yield name, there, tokens, (domain,)
            continue
        halves = _shares(_whole([upsampling.long_share, 1 - upsampling.long_share]), tokens)
        yield f"long {name}", there & is_long, halves[0], (domain, 1)
        yield f"short {name}", there & ~is_long, halves[1], (domain, 2)


def _whole(shares: list[float]) -> list[int]:
    # Decimal fractions of a study file, as exact numbers.
    return [round(share * 10**9) for share in shares]


def _shares(weights: list[int], budget: int) -> list[int]:
    total = sum(weights)
    shares = [budget * weight // total for weight in weights]
    # The largest remainders are rounded up.
    remainders = [budget * weight % total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda domain: -remainders[domain])
    for domain in by_remainder[: budget - sum(shares)]:
        shares[domain] += 1
    return shares


def _fill(
    members: NDArray[np.int64],
    lengths: NDArray[np.integer[Any]],
    wanted: int,
    is_long: NDArray[np.bool_],
    keep_rate: float,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    parts: list[NDArray[np.int64]] = []
    counts: list[int] = []
    tokens = 0
    while tokens < wanted and members.size:
        shuffled = rng.permutation(members)
        kept = shuffled[is_long[shuffled] | (rng.random(shuffled.size) < keep_rate)]
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
