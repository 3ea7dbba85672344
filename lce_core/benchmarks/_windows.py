"""Windows over a domain of the held-out text, and their losses in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from lce_core.benchmarks import CellRequest, Score
from lce_core.errors import UnavailableError
from lce_core.stats import Estimate

_GROUP_TOKENS = 1 << 22

Report = Callable[[int, int], None]


def num_windows(stream_tokens: int, length: int, stride: int, *, drop_last: bool) -> int:
    """Windows of `length` tokens that start every `stride` tokens of a stream.

    `drop_last` counts as LCEG's script does: starts below stream_tokens - length, the last of them
    left out. Otherwise every window that lies within the stream counts.
    """
    room = stream_tokens - length
    return max(0, -(-room // stride) - 1) if drop_last else max(0, room // stride + 1)


def domain_stream(request: CellRequest, max_tokens: int | None) -> NDArray[np.uint32]:
    """The first `max_tokens` tokens (None: all) of the domain that the request's task names.

    Raises:
      UnavailableError: the study's corpus has no such domain.
    """
    if request.task not in request.held_out.domains:
        raise UnavailableError(
            f"domain {request.task!r}: the held-out text has {', '.join(request.held_out.domains)}."
            " Name one of these in `domains`."
        )
    stream: NDArray[np.uint32] = request.held_out.stream(request.task)
    return stream[:max_tokens]


def cut_windows(
    stream: NDArray[np.uint32], length: int, stride: int, *, drop_last: bool = False
) -> NDArray[np.uint32]:
    """Read-only view (n, length) of the windows counted by `num_windows`.

    Raises:
      UnavailableError: the stream is too short for one window.
    """
    count = num_windows(len(stream), length, stride, drop_last=drop_last)
    if not count:
        needed = length + (stride + 1 if drop_last else 0)
        raise UnavailableError(
            f"{len(stream)} held-out tokens: a window of {length} tokens at stride {stride} needs"
            f" {needed}. Raise evaluation.held_out_tokens or give the domain more text."
        )
    windows = np.lib.stride_tricks.sliding_window_view(stream, length)
    return windows[::stride][:count]


def window_losses(
    request: CellRequest, windows: NDArray[np.uint32]
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yields (first window, NLL in nats (windows, L - 1)) for groups of windows.

    A group is small enough that a whole book at stride 256 need not be held at once.
    """
    from lce_core.likelihood import window_nll

    group = max(1, _GROUP_TOKENS // windows.shape[1])
    for first in range(0, len(windows), group):
        yield (
            first,
            window_nll(
                request.model,
                windows[first : first + group],
                batch_tokens=request.batch_tokens,
                report=_shifted(request.report, first, len(windows)),
            ),
        )


def _shifted(report: Report, first: int, total: int) -> Report:
    return lambda done, _: report(first + done, total)


def score(metric: str, estimate: Estimate, *, higher_is_better: bool) -> Score:
    """The estimate as a row of the result."""
    return Score(
        metric, estimate.value, estimate.low, estimate.high, estimate.num_samples, higher_is_better
    )
