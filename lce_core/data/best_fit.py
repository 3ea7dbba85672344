"""Best-fit-decreasing packing: choose a row for each document, without cutting it.

Documents are placed from the longest to the shortest, each in the row that it leaves the least
space in. Source: Ding et al. 2024, arXiv:2404.10830, section 3; OLMo 3 (arXiv:2512.13961) packs in
this way. Here the number of rows is given: a document that fits into none of them is left out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from lce_core.data.sampling import Draw


@dataclass(frozen=True, eq=False)
class Pieces:
    """Documents, or parts of documents that are longer than a row, in the order of rows."""

    drawn: NDArray[np.int64]
    """Index of each piece's document in the draw (pieces,)."""
    offsets: NDArray[np.int64]
    """First token of the document in each piece (pieces,)."""
    tokens: NDArray[np.int64]
    starts: NDArray[np.int64]
    """First token of each piece in all rows (pieces,), ascending."""


def fit_pieces(draw: Draw, row_length: int, num_rows: int) -> Pieces:
    """Place a draw of `num_rows * row_length` tokens; each row gets at least one piece.

    Within a row, pieces keep the order of the draw.
    """
    counts = -(-draw.tokens // row_length)
    drawn = np.repeat(np.arange(len(counts)), counts)
    offsets = row_length * (np.arange(len(drawn)) - np.repeat(np.cumsum(counts) - counts, counts))
    tokens = np.minimum(draw.tokens[drawn] - offsets, row_length)
    rows = best_fit(tokens, row_length, num_rows)
    order = np.argsort(rows, kind="stable")[np.count_nonzero(rows < 0) :]
    drawn, offsets, tokens, rows = (one[order] for one in (drawn, offsets, tokens, rows))
    ends = np.cumsum(tokens)
    before = np.searchsorted(rows, rows)  # first piece of each piece's row
    starts = rows * row_length + ends - tokens - (ends - tokens)[before]
    return Pieces(drawn, offsets, tokens, starts)


def best_fit(lengths: NDArray[np.int64], space: int, num_rows: int) -> NDArray[np.int64]:
    """Return the row of each document (documents,), or -1 if it fits into none of `num_rows`.

    Of rows with equal space, the one that was opened first is chosen. Lengths are at most `space`.
    """
    rows = np.full(len(lengths), -1, dtype=np.int64)
    spaces: list[int] = []  # spaces that some open row has, ascending
    with_space: dict[int, list[int]] = {}  # heaps of rows
    opened = 0
    for document in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[document])
        place = bisect_left(spaces, length)
        if place < len(spaces):
            left = spaces[place]
            row = heappop(with_space[left])
            if not with_space[left]:
                del with_space[left], spaces[place]
        elif opened < num_rows:
            row, left, opened = opened, space, opened + 1
        else:
            continue
        rows[document] = row
        left -= length
        if left:
            if left not in with_space:
                with_space[left] = []
                insort(spaces, left)
            heappush(with_space[left], row)
    return rows
