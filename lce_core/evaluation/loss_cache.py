"""Token losses that one loaded model has already computed, for the cells that ask them again.

Benchmarks that read the same windows of the same text share one pass: perplexity with windows that
do not overlap, and NLL by position. The beginning of a longer window serves a shorter one where the
model treats both alike (`ExtendedModel.begins_alike`); such losses agree up to rounding, as they do
between batch sizes, and are therefore not read off in half precision. Whoever holds the cache drops
it together with the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LIMIT_BYTES = 1 << 30

Text = tuple[str, int | None]
"""Digest of a stream of tokens, and the token put before each of its windows."""


@dataclass(frozen=True, eq=False)
class TokenScores:
    """What a model makes of the tokens of windows of one length L, or of one window."""

    nll: NDArray[np.float32]
    """In nats, of tokens 1..L-1 (windows, L - 1)."""
    hits: NDArray[np.bool_]
    """Whether tokens 1..L are the likeliest ones (windows, L); L is the token behind the window."""

    def __len__(self) -> int:
        return len(self.nll)

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.nll.nbytes + self.hits.nbytes

    def row(self, index: int) -> TokenScores:
        """One window."""
        return TokenScores(self.nll[index], self.hits[index])

    def beginning(self, length: int) -> TokenScores:
        """A window's first `length` tokens as a window of their own."""
        return TokenScores(self.nll[: length - 1], self.hits[:length])


_Rows = dict[int, TokenScores]


class LossCache:
    """Scores by text, length of window and first token; the oldest lengths are dropped first."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit, self._bytes = limit_bytes, 0
        self._passes: dict[tuple[Text, int], _Rows] = {}

    def find(
        self, text: Text, start: int, length: int, alike: Callable[[int, int], bool]
    ) -> TokenScores | None:
        """Scores of the window, or None.

        Args:
          text: what the window is cut from.
          start: its first token.
          length: its tokens.
          alike: whether a window of the first length is treated as the beginning of one of the
            second.
        """
        row = self._passes.get((text, length), {}).get(start)
        if row is not None:
            return row
        for (other, longer), rows in self._passes.items():
            if other == text and longer > length and start in rows and alike(length, longer):
                return rows[start].beginning(length)
        return None

    def keep(self, text: Text, starts: NDArray[np.int64], length: int, scores: TokenScores) -> None:
        """Remembers the scores of windows, which must not change any more, if they fit."""
        key = (text, length)
        rows = self._passes.setdefault(key, {})
        while self._bytes + scores.nbytes > self._limit and next(iter(self._passes)) != key:
            dropped = self._passes.pop(next(iter(self._passes)))
            self._bytes -= sum(row.nbytes for row in dropped.values())
        if self._bytes + scores.nbytes <= self._limit:
            rows.update((start, scores.row(index)) for index, start in enumerate(starts.tolist()))
            self._bytes += scores.nbytes
