"""Cut windows from a token stream, and score them in groups with the help of the loss cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lce_core.benchmarks._base import CellRequest
from lce_core.errors import UnavailableError
from lce_core.evaluation.windows import Stream, Text, TokenScores, Windows
from lce_core.progress import Progress

_GROUP_TOKENS = 1 << 22
"""Maximum tokens of a group of windows. The float32 losses of a group take at most 16 MB."""


def num_windows(stream_tokens: int, length: int, stride: int, *, drop_last: bool) -> int:
    """Return the number of windows whose starts are `stride` tokens apart.

    `drop_last` counts as LCEG's script does: ceil((stream_tokens - length) / stride) - 1.
    """
    room = stream_tokens - length
    return max(0, -(-room // stride) - 1) if drop_last else max(0, room // stride + 1)


def cut_windows(
    stream: NDArray[np.uint32], length: int, stride: int, *, drop_last: bool = False
) -> Windows:
    """Cut a stream into windows (`num_windows`); raise UnavailableError if there is none."""
    count = num_windows(len(stream), length, stride, drop_last=drop_last)
    if not count:
        needed = length + (stride + 1 if drop_last else 0)
        raise UnavailableError(
            "text to score",
            f"{len(stream)} tokens",
            f"at least {needed} tokens, enough for one window of {length} at stride {stride}",
            "use a shorter length, raise evaluation.held_out_tokens for a domain, or add text",
        )
    return Windows(Stream(stream), np.arange(count) * stride, length)


def window_scores(
    request: CellRequest, windows: Windows, report: Progress | None = None
) -> Iterator[tuple[int, TokenScores]]:
    """Score windows in groups; yield (index of a group's first window, scores of its tokens).

    A group has losses of at most 16 MB, or one window. Cached losses are not computed again.
    """
    # Refuse windows beyond the method's maximum length even if their losses are cached.
    request.model.begin_request(windows.length)
    size = max(1, _GROUP_TOKENS // windows.length)
    groups = [windows.rows(first, size) for first in range(0, len(windows), size)]
    for place, group in enumerate(groups):
        first = place * size
        progress = shifted(report or request.report, first, len(windows))
        later = partial(_missing_of, request, groups[place + 1 :])
        yield first, _scores(request, group, len(windows), later, progress)


def _scores(
    request: CellRequest,
    windows: Windows,
    total: int,
    later: Callable[[], list[Windows]],
    report: Progress,
) -> TokenScores:
    known = _known(request, windows)
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
    uncached = replace(windows, starts=windows.starts[missing])
    progress = shifted(report, found, len(windows))
    if request.ranges is None:
        computed = _all_at_once(request, uncached, progress)
    else:
        computed = request.ranges.scores(uncached, total, later, progress)
    request.losses.keep(_text_of(windows), uncached.starts, windows.length, computed)
    nll[missing], hits[missing] = computed.nll, computed.hits
    return TokenScores(nll, hits)


def _all_at_once(request: CellRequest, windows: Windows, report: Progress) -> TokenScores:
    from lce_core.evaluation import likelihood

    return likelihood.window_scores(
        request.model,
        windows.ids(),
        following=windows.following(),
        batch_tokens=request.batch_tokens,
        report=report,
    )


def _missing_of(request: CellRequest, groups: Sequence[Windows]) -> list[Windows]:
    starts = (group.starts[[row is None for row in _known(request, group)]] for group in groups)
    return [replace(groups[0], starts=some) for some in starts if len(some)]


def _known(request: CellRequest, windows: Windows) -> list[TokenScores | None]:
    text, alike = _text_of(windows), request.model.begins_alike
    return [
        request.losses.find(text, start, windows.length, alike) for start in windows.starts.tolist()
    ]


def _text_of(windows: Windows) -> Text:
    return windows.stream.digest, windows.before


def shifted(report: Progress, first: int, total: int) -> Progress:
    """Return a callback for a part of some work: it reports `first` + the part's progress."""
    return lambda done, _: report(first + done, total)
