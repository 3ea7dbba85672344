"""Cut each document into windows and score them, so that no token is scored twice."""

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
    """Index of the window's first text token in the documents without special tokens."""
    length: int
    """Number of tokens, including a beginning-of-text token."""
    scored: int
    """Number of tokens at the window's end that no earlier window has scored."""
    fills: bool
    """True for the first window of its document if it has the full window length."""


def cut_documents(
    sizes: Sequence[int], length: int, stride: int, *, before: bool, truncate: bool
) -> list[Cut]:
    """Return the windows of all documents, in order. A document's last window may be shorter.

    Args:
      sizes: number of tokens of each document, without special tokens.
      length: number of tokens of a window, including a special token at its start.
      stride: tokens from one window's start to the next, reduced to the text of a window.
      before: True if each window begins with a special token.
      truncate: True returns only the first window of each document that fills it.
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

    `stream` has the documents without special tokens; `before` is the special token of each window.
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
