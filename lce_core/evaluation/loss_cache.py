"""Cache of token losses of the loaded model, for benchmarks that score the same windows of text.

Perplexity with non-overlapping windows and NLL by position score the same windows, so the benchmark
that runs second reuses the losses of the first. A shorter window also reuses the first losses of a
longer window if the model gives both the same results (`ExtendedModel.begins_alike`). These losses
are equal up to rounding, so half precision, where rounding matters, does not reuse them. The owner
of the cache must discard it together with the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Enough for about 200 million scored tokens: 4 bytes for the NLL and 1 byte for the hit of each.
LIMIT_BYTES = 1 << 30

Text = tuple[str, int | None]
"""Cache key of a text: sha256 of its token ids, and the token id inserted before each window (None
for none)."""


@dataclass(frozen=True, eq=False)
class TokenScores:
    """Scores of the tokens of windows of one length L, or of a single window.

    Tokens count from 0. The arrays of a single window lack the first dimension.
    """

    nll: NDArray[np.float32]
    """NLL in nats of tokens 1..L-1 (windows, L - 1)."""
    hits: NDArray[np.bool_]
    """True where the text's token is the model's most likely one, for tokens 1..L (windows, L).
    Token L is the first after the window."""

    def __len__(self) -> int:
        return len(self.nll)

    @property
    def nbytes(self) -> int:
        return self.nll.nbytes + self.hits.nbytes

    def row(self, index: int) -> TokenScores:
        return TokenScores(self.nll[index], self.hits[index])

    def beginning(self, length: int) -> TokenScores:
        """Return the scores of the shorter window that the first `length` tokens would be.

        Call this only for the scores of a single window.
        """
        return TokenScores(self.nll[: length - 1], self.hits[:length])


_Rows = dict[int, TokenScores]


class LossCache:
    """Token scores of windows that the loaded model has processed, up to a limit in bytes.

    When the cache is full, it drops all windows of the text and length that were cached first.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit, self._bytes = limit_bytes, 0
        self._passes: dict[tuple[Text, int], _Rows] = {}

    def find(
        self, text: Text, start: int, length: int, alike: Callable[[int, int], bool]
    ) -> TokenScores | None:
        """Return a window's scores from the cache, or None.

        The scores may come from a longer cached window with the same start.

        Args:
          text: text that the window is cut from.
          start: index of the window's first token in the text.
          length: number of tokens of the window.
          alike: function of a shorter and a longer length that returns True if the model gives a
            window of the shorter length the same results as the start of the longer window.
        """
        row = self._passes.get((text, length), {}).get(start)
        if row is not None:
            return row
        for (other, longer), rows in self._passes.items():
            if other == text and longer > length and start in rows and alike(length, longer):
                return rows[start].beginning(length)
        return None

    def keep(self, text: Text, starts: NDArray[np.int64], length: int, scores: TokenScores) -> None:
        """Cache the scores of windows if they fit; the caller must not change the arrays later."""
        key = (text, length)
        rows = self._passes.setdefault(key, {})
        while self._bytes + scores.nbytes > self._limit and next(iter(self._passes)) != key:
            dropped = self._passes.pop(next(iter(self._passes)))
            self._bytes -= sum(row.nbytes for row in dropped.values())
        if self._bytes + scores.nbytes <= self._limit:
            rows.update((start, scores.row(index)) for index, start in enumerate(starts.tolist()))
            self._bytes += scores.nbytes
