"""Cache of token losses of the loaded model, for cells that score the same windows again.

Benchmarks that read the same windows of the same text share one pass: perplexity with
non-overlapping windows, and NLL by position. The first tokens of a longer window also serve a
shorter one if the model treats both alike (`ExtendedModel.begins_alike`). Such losses agree only up
to rounding, as they do between batch sizes, so half precision does not use them. The owner of the
cache must discard it together with the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Enough for about 200 million scored tokens (4 bytes of NLL and 1 byte of hit each).
LIMIT_BYTES = 1 << 30

Text = tuple[str, int | None]
"""sha256 of a token stream, and the token inserted before each of its windows (None for none)."""


@dataclass(frozen=True, eq=False)
class TokenScores:
    """Scores of the tokens of windows of one length L, or of a single window."""

    nll: NDArray[np.float32]
    """NLL in nats of tokens 1..L-1 (windows, L - 1)."""
    hits: NDArray[np.bool_]
    """True where tokens 1..L are the most likely ones (windows, L); token L follows the window."""

    def __len__(self) -> int:
        return len(self.nll)

    @property
    def nbytes(self) -> int:
        """Size of both arrays in bytes."""
        return self.nll.nbytes + self.hits.nbytes

    def row(self, index: int) -> TokenScores:
        """Return the scores of window number `index`."""
        return TokenScores(self.nll[index], self.hits[index])

    def beginning(self, length: int) -> TokenScores:
        """Return the scores of a window's first `length` tokens as a shorter window."""
        return TokenScores(self.nll[: length - 1], self.hits[:length])


_Rows = dict[int, TokenScores]


class LossCache:
    """Token scores of windows that the loaded model has read, up to a limit in bytes.

    When it is full, it drops all windows of the text and length that were stored first.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit, self._bytes = limit_bytes, 0
        self._passes: dict[tuple[Text, int], _Rows] = {}

    def find(
        self, text: Text, start: int, length: int, alike: Callable[[int, int], bool]
    ) -> TokenScores | None:
        """Return the stored scores of a window, or of the start of a longer one; None without any.

        Args:
          text: text that the window is cut from.
          start: index of its first token.
          length: number of its tokens.
          alike: returns True if the model treats a window of the first length like the start of a
            window of the second length.
        """
        row = self._passes.get((text, length), {}).get(start)
        if row is not None:
            return row
        for (other, longer), rows in self._passes.items():
            if other == text and longer > length and start in rows and alike(length, longer):
                return rows[start].beginning(length)
        return None

    def keep(self, text: Text, starts: NDArray[np.int64], length: int, scores: TokenScores) -> None:
        """Store the scores of windows if they fit; the arrays must not change afterwards."""
        key = (text, length)
        rows = self._passes.setdefault(key, {})
        while self._bytes + scores.nbytes > self._limit and next(iter(self._passes)) != key:
            dropped = self._passes.pop(next(iter(self._passes)))
            self._bytes -= sum(row.nbytes for row in dropped.values())
        if self._bytes + scores.nbytes <= self._limit:
            rows.update((start, scores.row(index)) for index, start in enumerate(starts.tolist()))
            self._bytes += scores.nbytes
