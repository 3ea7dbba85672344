"""Text windows within single documents; together they score each token of a document once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lce_core.benchmarks._base import CellRequest
from lce_core.benchmarks._text.windows import shifted, window_scores
from lce_core.evaluation.windows import Stream, Windows


@dataclass(frozen=True)
class Cut:
    """One window of a document."""

    document: int
    start: int
    """Index of the window's first token in the concatenated documents without special tokens."""
    length: int
    """Number of tokens, including the beginning-of-text token."""
    scored: int
    """Number of scored tokens: those at the window's end that no earlier window has scored."""
    fills: bool
    """True for the first window of a document that is at least as long as a window."""


def cut_documents(
    sizes: Sequence[int], length: int, stride: int, *, before: bool, truncate: bool
) -> list[Cut]:
    """Cut the windows of every document, in order.

    Args:
      sizes: tokens of each document, without special tokens.
      length: tokens of a window.
      stride: tokens from one start to the next; at most the document tokens of a window.
      before: True if a window begins with a special token.
      truncate: True returns only the first window of each document, and skips shorter documents.
    """
    room = length - before
    cuts, offset = [], 0
    for document, size in enumerate(sizes):
        start = done = 0
        while done < size and not (truncate and (start or size < room)):
            end = min(start + room, size)
            # The first token of a window is only predicted if a special token precedes it.
            scored = min(end - done, end - start - 1 + before)
            if scored:
                fills = start == 0 and end == room
                cuts.append(Cut(document, offset + start, end - start + before, scored, fills))
            done, start = end, start + min(stride, room)
        offset += size
    return cuts


def document_losses(
    request: CellRequest, stream: Stream, cuts: Sequence[Cut], before: int | None
) -> list[NDArray[np.float32]]:
    """Return the NLL in nats of tokens 1..L-1 of each window, in the order of `cuts`.

    Windows of equal length share batches. `before` is the id of the special token that starts each
    window; None for none.
    """
    rows: list[NDArray[np.float32]] = [np.zeros(0, np.float32)] * len(cuts)
    by_length: dict[int, list[int]] = {}
    for index, cut in enumerate(cuts):
        by_length.setdefault(cut.length, []).append(index)
    done = 0
    for length, members in sorted(by_length.items(), reverse=True):
        starts = np.array([cuts[index].start for index in members])
        report = shifted(request.report, done, len(cuts))
        windows = Windows(stream, starts, length, before)
        for first, found in window_scores(request, windows, report):
            for index, row in zip(members[first : first + len(found)], found.nll, strict=True):
                rows[index] = row
        done += len(members)
    return rows
