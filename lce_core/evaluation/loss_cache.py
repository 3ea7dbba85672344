"""Cache of token losses of the loaded model, for benchmarks that score the same windows of text.

A shorter window also reuses the first losses of a longer window if the model gives both the same
results (`ExtendedModel.begins_alike`). These losses are equal up to rounding, so half precision,
where rounding matters, does not reuse them. The owner of the cache must discard it together with
the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Enough for about 200 million scored tokens: 4 bytes for the NLL and 1 byte for the hit of each.
LIMIT_BYTES = 1 << 30

Text = tuple[str, int | None]
"""Cache key of a text: sha256 of its token ids, and the token id inserted before each window."""


@dataclass(frozen=True, eq=False)
class TokenScores:
    """Token scores of windows of one length L; a single window's arrays lack a dimension."""

    nll: NDArray[np.float32]
    """NLL in nats of tokens 1..L-1 (windows, L - 1)."""
    hits: NDArray[np.bool_]
    """True for each token 1..L (windows, L) that is the most likely one."""

    def __len__(self) -> int:
        return len(self.nll)

    @property
    def nbytes(self) -> int:
        return self.nll.nbytes + self.hits.nbytes

    def row(self, index: int) -> TokenScores:
        return TokenScores(self.nll[index], self.hits[index])

    def beginning(self, length: int) -> TokenScores:
        """Return the scores of a single window's first `length` tokens."""
        return TokenScores(self.nll[: length - 1], self.hits[:length])


_Rows = dict[int, TokenScores]


class LossCache:
    """Token scores of processed windows, up to a limit in bytes; drops the oldest text."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit, self._bytes = limit_bytes, 0
        self._passes: dict[tuple[Text, int], _Rows] = {}

    def find(
        self, text: Text, start: int, length: int, alike: Callable[[int, int], bool]
    ) -> TokenScores | None:
        """Return a window's scores, perhaps the start of a longer cached window's; None if absent.

        `alike(shorter, longer)` is True if the model gives both lengths the same results.
        """
        row = self._passes.get((text, length), {}).get(start)
        if row is not None:
            return row
        for (other, longer), rows in self._passes.items():
            if other == text and longer > length and start in rows and alike(length, longer):
                return rows[start].beginning(length)
        return None

    def keep(self, text: Text, starts: NDArray[np.int64], length: int, scores: TokenScores) -> None:
        key = (text, length)
        rows = self._passes.setdefault(key, {})
        while self._bytes + scores.nbytes > self._limit and next(iter(self._passes)) != key:
            dropped = self._passes.pop(next(iter(self._passes)))
            self._bytes -= sum(row.nbytes for row in dropped.values())
        if self._bytes + scores.nbytes <= self._limit:
            rows.update((start, scores.row(index)) for index, start in enumerate(starts.tolist()))
            self._bytes += scores.nbytes
