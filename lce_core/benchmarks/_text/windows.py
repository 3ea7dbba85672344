"""Windows over a stream of tokens, and their losses in bounded memory, each computed once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lce_core.benchmarks._base import CellRequest
from lce_core.data.sequences import Sequences
from lce_core.errors import UnavailableError
from lce_core.evaluation.loss_cache import TokenScores
from lce_core.reports import Progress

_GROUP_TOKENS = 1 << 22


@dataclass(frozen=True, eq=False)
class Stream:
    """Tokens of one or more documents, one after the other (tokens,)."""

    tokens: NDArray[np.uint32]

    @cached_property
    def digest(self) -> str:
        """sha256 of the tokens."""
        return hashlib.sha256(self.tokens.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of one length over a stream."""

    stream: Stream
    starts: NDArray[np.int64]
    """First token of each window in the stream (windows,)."""
    length: int
    """Tokens of a window, `before` included."""
    before: int | None = None
    """Token put before each window; None for none."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sequences(self) -> Sequences:
        """The windows as sequences of one length."""
        return Sequences({self.length: len(self)})

    def rows(self, first: int, number: int) -> Windows:
        """Some of the windows, in order."""
        return replace(self, starts=self.starts[first : first + number])

    def ids(self) -> NDArray[np.uint32]:
        """Their tokens (windows, length)."""
        width = self.length - (self.before is not None)
        found = np.lib.stride_tricks.sliding_window_view(self.stream.tokens, width)[self.starts]
        if self.before is None:
            return found
        return np.insert(found, 0, self.before, axis=1)

    def following(self) -> NDArray[np.int64]:
        """The token behind each window in the stream (windows,); -1 where the stream ends."""
        ends = self.starts + self.length - (self.before is not None)
        ended = np.append(self.stream.tokens, 0)[ends]
        return np.where(ends < len(self.stream.tokens), ended.astype(np.int64), -1)


def num_windows(stream_tokens: int, length: int, stride: int, *, drop_last: bool) -> int:
    """Windows of `length` tokens that start every `stride` tokens of a stream.

    `drop_last` counts as LCEG's script does: starts below stream_tokens - length, the last of them
    left out. Otherwise every window that lies within the stream counts.
    """
    room = stream_tokens - length
    return max(0, -(-room // stride) - 1) if drop_last else max(0, room // stride + 1)


def cut_windows(
    stream: NDArray[np.uint32], length: int, stride: int, *, drop_last: bool = False
) -> Windows:
    """The windows counted by `num_windows`.

    Raises:
      UnavailableError: the stream is too short for one window.
    """
    count = num_windows(len(stream), length, stride, drop_last=drop_last)
    if not count:
        needed = length + (stride + 1 if drop_last else 0)
        raise UnavailableError(
            "held-out text",
            f"{len(stream)} tokens",
            f"at least the {needed} tokens of a window of {length} at stride {stride}",
            "raise evaluation.held_out_tokens or give the domain or data set more text",
        )
    return Windows(Stream(stream), np.arange(count) * stride, length)


def window_losses(
    request: CellRequest, windows: Windows, report: Progress | None = None
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yields (first window, NLL in nats (windows, L - 1)) for groups of windows.

    Arguments are those of `window_scores`.
    """
    for first, found in window_scores(request, windows, report):
        yield first, found.nll


def window_scores(
    request: CellRequest, windows: Windows, report: Progress | None = None
) -> Iterator[tuple[int, TokenScores]]:
    """Yields (first window, scores of their tokens) for groups of windows.

    A group is small enough that a whole book at stride 256 need not be held at once. What the
    request's cache holds is not computed again.

    Args:
      request: gives the model and the cache.
      windows: what to score.
      report: told (windows done, windows in all); the request's own if None.
    """
    request.model.begin_request(windows.length)  # beyond the method's reach, whatever is cached
    group = max(1, _GROUP_TOKENS // windows.length)
    for first in range(0, len(windows), group):
        part = windows.rows(first, group)
        told = _shifted(report or request.report, first, len(windows))
        yield first, _scores(request, part, told)


def _scores(request: CellRequest, windows: Windows, report: Progress) -> TokenScores:
    from lce_core.evaluation import likelihood

    cache, alike = request.losses, request.model.begins_alike
    text = (windows.stream.digest, windows.before)
    known = [cache.find(text, start, windows.length, alike) for start in windows.starts.tolist()]
    missing = np.flatnonzero([row is None for row in known])
    found = len(windows) - len(missing)
    nll = np.empty((len(windows), windows.length - 1), dtype=np.float32)
    hits = np.empty((len(windows), windows.length), dtype=np.bool_)
    for index, row in enumerate(known):
        if row is not None:
            nll[index], hits[index] = row.nll, row.hits
    if not len(missing):
        report(found, found)
        return TokenScores(nll, hits)
    asked = replace(windows, starts=windows.starts[missing])
    computed = likelihood.window_scores(
        request.model,
        asked.ids(),
        following=asked.following(),
        batch_tokens=request.batch_tokens,
        report=_shifted(report, found, len(windows)),
    )
    cache.keep(text, asked.starts, windows.length, computed)
    nll[missing], hits[missing] = computed.nll, computed.hits
    return TokenScores(nll, hits)


def _shifted(report: Progress, first: int, total: int) -> Progress:
    return lambda done, _: report(first + done, total)
