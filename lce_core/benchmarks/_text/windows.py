"""Cut windows from a token stream, score them in groups, and compute perplexity from their losses.

Four groups of papers define perplexity differently: by the tokens of a window that they score, and
by how they average losses.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lce_core.benchmarks._base import CellRequest
from lce_core.errors import UnavailableError
from lce_core.evaluation.windows import Stream, TokenScores, Windows
from lce_core.progress import Progress, shifted
from lce_core.statistics.estimates import Estimate, bootstrap_mean, cluster_numbers

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
    from lce_core.evaluation import likelihood

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
    if request.cell is None:
        model, batch_tokens = request.model, request.batch_tokens
        computed = likelihood.score_windows(model, uncached, batch_tokens, progress)
    else:
        computed = request.cell.scores(uncached, total, later, progress)
    text = windows.stream.digest, windows.before
    request.losses.keep(text, uncached.starts, windows.length, computed)
    nll[missing], hits[missing] = computed.nll, computed.hits
    return TokenScores(nll, hits)


def _missing_of(request: CellRequest, groups: Sequence[Windows]) -> list[Windows]:
    starts = (group.starts[[row is None for row in _known(request, group)]] for group in groups)
    return [replace(groups[0], starts=some) for some in starts if len(some)]


def _known(request: CellRequest, windows: Windows) -> list[TokenScores | None]:
    text, length = (windows.stream.digest, windows.before), windows.length
    find, alike = request.losses.find, request.model.begins_alike
    return [find(text, start, length, alike) for start in windows.starts.tolist()]


@dataclass(frozen=True, eq=False)
class Scored:
    nll: NDArray[np.float64]
    """Mean NLL in nats of each window's scored tokens (windows,)."""
    tokens: NDArray[np.int64]
    """Number of scored tokens of each window (windows,)."""
    clusters: Sequence[Hashable]
    """Cluster of each window, such as its document; the bootstrap resamples whole clusters."""


def scored_means(nll: NDArray[np.floating], tokens: int) -> NDArray[np.float64]:
    """Return the mean of the last `tokens` losses of each window, (windows,)."""
    return np.asarray(nll[:, nll.shape[1] - tokens :].mean(axis=1, dtype=np.float64))


def over_windows(scored: Scored, base: float = math.e) -> Estimate:
    """Return base^(mean over windows of `nll`).

    LCEG and LongLoRA score all tokens of a window (arXiv:2409.12181, Tables 2, 5, 9, 10). YaRN's
    GovReport (arXiv:2309.00071, Table 8) scores only tokens that no earlier window has scored, so a
    first window with 32k scored tokens has the same weight as a later one with 256.
    """
    return _power(base, bootstrap_mean(scored.nll, clusters=scored.clusters))


def over_tokens(scored: Scored, base: float = math.e) -> Estimate:
    """Return base^(sum of tokens * nll / sum of tokens), as Press et al. (arXiv:2108.12409)."""
    mean = bootstrap_mean(scored.nll, weights=scored.tokens, clusters=scored.clusters)
    return _power(base, mean)


def over_documents(scored: Scored) -> Estimate:
    """Return the mean over documents, the clusters, of exp of each document's mean NLL.

    Source: Base of RoPE Bounds Context Length (arXiv:2405.14591).
    """
    return bootstrap_mean(np.exp(_cluster_means(scored)))


def over_document_losses(scored: Scored) -> Estimate:
    """Return exp of the mean over documents, the clusters, of each document's mean NLL.

    Source: YaRN's Proof-pile (arXiv:2309.00071, Tables 1, 5, 6, 7), on documents' first tokens.
    """
    return _power(math.e, bootstrap_mean(_cluster_means(scored)))


def _cluster_means(scored: Scored) -> NDArray[np.float64]:
    index = cluster_numbers(scored.clusters, scored.nll)
    sums = np.bincount(index, weights=scored.nll * scored.tokens)
    return np.asarray(sums / np.bincount(index, weights=scored.tokens))


def _power(base: float, nll: Estimate) -> Estimate:
    low, high = (None if bound is None else base**bound for bound in (nll.low, nll.high))
    return Estimate(base**nll.value, low, high, nll.num_samples)
