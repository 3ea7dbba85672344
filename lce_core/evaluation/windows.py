"""Windows, the slices of a token stream that perplexity benchmarks score, and their scores.

Scores of the loaded model are cached, for benchmarks that score the same windows. A shorter window
also reuses the first losses of a longer window if the model gives both the same results up to
rounding (`ExtendedModel.begins_alike`), except in half precision, where rounding matters.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lce_core.data.sequences import Sequences

# Enough for about 200 million scored tokens: 4 bytes for the NLL and 1 byte for the hit of each.
LIMIT_BYTES = 1 << 30

Text = tuple[str, int | None]
"""Cache key of a text: sha256 of its token ids, and the token id inserted before each window."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Token ids (tokens,) of one or more documents, concatenated."""

    tokens: NDArray[np.uint32]

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.tokens.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of one length over a token stream; they may overlap."""

    stream: Stream
    starts: NDArray[np.int64]
    """Index in the stream of each window's first token, (windows,)."""
    length: int
    """Number of tokens of each window, the token `before` included."""
    before: int | None = None
    """Token id inserted before each window, such as a beginning-of-text token; None for none."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sequences(self) -> Sequences:
        return Sequences({self.length: len(self)})

    def rows(self, first: int, number: int) -> Self:
        return replace(self, starts=self.starts[first : first + number])

    def ids(self) -> NDArray[np.uint32]:
        """Return the token ids (windows, length); the first is `before` unless it is None."""
        width = self.length - (self.before is not None)
        found = np.lib.stride_tricks.sliding_window_view(self.stream.tokens, width)[self.starts]
        if self.before is None:
            return found
        return np.insert(found, 0, self.before, axis=1)

    def following(self) -> NDArray[np.int64]:
        """Return the token after each window, (windows,); -1 if the stream ends with the window."""
        ends = self.starts + self.length - (self.before is not None)
        ended = np.append(self.stream.tokens, 0)[ends]
        return np.where(ends < len(self.stream.tokens), ended.astype(np.int64), -1)


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


class LossCache:
    """Token scores of one model's windows, up to a limit in bytes; drops the oldest text."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit, self._bytes = limit_bytes, 0
        self._passes: dict[tuple[Text, int], dict[int, TokenScores]] = {}

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
                return TokenScores(rows[start].nll[: length - 1], rows[start].hits[:length])
        return None

    def keep(self, text: Text, starts: NDArray[np.int64], length: int, scores: TokenScores) -> None:
        key = (text, length)
        rows = self._passes.setdefault(key, {})
        while self._bytes + scores.nbytes > self._limit and next(iter(self._passes)) != key:
            dropped = self._passes.pop(next(iter(self._passes)))
            self._bytes -= sum(row.nbytes for row in dropped.values())
        if self._bytes + scores.nbytes <= self._limit:
            for start, nll, hits in zip(starts.tolist(), scores.nll, scores.hits, strict=True):
                rows[start] = TokenScores(nll, hits)
            self._bytes += scores.nbytes
