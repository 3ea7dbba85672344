"""Windows, the slices of a token stream that perplexity benchmarks score; all of one length."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lce_core.data.sequences import Sequences


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

    def rows(self, first: int, number: int) -> Windows:
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
