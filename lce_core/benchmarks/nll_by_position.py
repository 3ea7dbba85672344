"""Negative log-likelihood by position in the window: where a method stops to use its context.

Windows of the cell's length follow each other without overlap over a domain of the held-out text.
`token_nll` holds the mean NLL of each bin of positions; scores are the mean over all positions
(`nll`) and over the last quarter (`nll_last_quarter`), with intervals by bootstrap over windows.

Profiles: `faithful` lets an unextended base model see chunks of its trained context only, as the
figure of LCEG does (a saw-tooth); `clean` and `fast` do not; `tiny` uses the first 16,384 tokens
and bins of an eighth of the trained context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lce_core.benchmarks import Benchmark, CellRequest, CellResult, Profile, Sample
from lce_core.benchmarks._windows import (
    cut_windows,
    domain_stream,
    num_windows,
    score,
    window_losses,
)
from lce_core.models import BaseModel
from lce_core.registry import Evidence, Source
from lce_core.stats import bootstrap_mean

TINY_TOKENS = 16384


class NllByPosition(Benchmark):
    """NLL against position; a task is a domain of the corpus."""

    unit: ClassVar[Literal["nats"]] = "nats"
    seeded: ClassVar[bool] = False
    default_metric: ClassVar[str] = "nll"
    forms: ClassVar[Mapping[Profile, str]] = {
        "faithful": "the unextended model sees chunks of its trained context only, as in LCEG's"
        " figure",
        "clean": "every method sees the whole window",
        "fast": "as clean",
        "tiny": "the first 16,384 tokens, bins of an eighth of the trained context",
    }

    domains: tuple[str, ...] = Field(default=("code", "prose"), min_length=1)
    """Domains of the study's corpus, each a task."""
    bin_width: int | None = Field(default=None, gt=0)
    """Positions that share a mean; None: 256, or as the profile says."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Tokens from the start of the stream that are used; None: all, or as the profile says."""

    def tasks(self) -> tuple[str, ...]:
        """The domains."""
        return self.domains

    def unavailable(self, base_model: BaseModel, task: str, eval_length: int) -> str | None:
        """Windows without a position to score."""
        if eval_length >= 2:
            return None
        return f"eval_length {eval_length}: a window holds at least 2 tokens"

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Windows times their length."""
        stream = min(self._max_tokens() or held_out_tokens, held_out_tokens)
        return eval_length * num_windows(stream, eval_length, eval_length, drop_last=False)

    def evaluate(self, request: CellRequest) -> CellResult:
        """Scores the windows of one domain by position."""
        length = request.eval_length
        windows = cut_windows(domain_stream(request, self._max_tokens()), length, length)
        losses = self._losses(request, windows)
        seen, quarter = ~np.isnan(losses), min(length - 1, 3 * length // 4)
        totals = np.where(seen, losses, 0.0).sum(axis=0, dtype=np.float64)
        counts = seen.sum(axis=0, dtype=np.int64)
        means = np.asarray(np.nanmean(losses, axis=1, dtype=np.float64))
        ends = np.nanmean(losses[:, quarter:], axis=1, dtype=np.float64)
        return CellResult(
            scores=(
                score("nll", bootstrap_mean(means), higher_is_better=False),
                score("nll_last_quarter", bootstrap_mean(ends), higher_is_better=False),
            ),
            samples=tuple(Sample(i, length, float(mean)) for i, mean in enumerate(means)),
            token_nll=bin_means(totals, counts, self._bin_width(request.base_model)),
            num_tokens=windows.size,
        )

    def _losses(self, request: CellRequest, windows: NDArray[np.uint32]) -> NDArray[np.float32]:
        """NLL by position (windows, L); NaN where nothing is predicted, as at position 0."""
        chunk = request.eval_length
        if self.profile == "faithful" and request.model.method.family == "none":
            chunk = min(chunk, request.base_model.geometry.trained_context)
        losses = np.full(windows.shape, np.nan, dtype=np.float32)
        # A chunk of one token predicts nothing.
        for start in range(0, windows.shape[1] - 1, chunk):
            piece = windows[:, start : start + chunk]
            for first, nll in window_losses(request, piece):
                losses[first : first + len(nll), start + 1 : start + piece.shape[1]] = nll
        return losses

    def _bin_width(self, base_model: BaseModel) -> int:
        if self.bin_width is not None:
            return self.bin_width
        return max(1, base_model.geometry.trained_context // 8) if self.profile == "tiny" else 256

    def _max_tokens(self) -> int | None:
        if self.max_tokens is None and self.profile == "tiny":
            return TINY_TOKENS
        return self.max_tokens


def bin_means(
    totals: NDArray[np.float64], counts: NDArray[np.int64], width: int
) -> tuple[tuple[int, float], ...]:
    """(first position, mean) of each bin of `width` positions that holds a loss."""
    edges = np.arange(0, len(totals), width)
    sums, numbers = np.add.reduceat(totals, edges), np.add.reduceat(counts, edges)
    return tuple(
        (int(edge), float(total / number))
        for edge, total, number in zip(edges, sums, numbers, strict=True)
        if number
    )


BENCHMARK = NllByPosition
SOURCE = Source(
    paper="arXiv:2409.12181",
    place="Figure 3 and its paragraph",
    reference="own",
    differs="no script was released; windows do not overlap and bins are disjoint",
)
EVIDENCE = (
    Evidence(
        {
            "call": "bin_means",
            "totals": [0.0, 2.0, 4.0, 6.0, 8.0],
            "counts": [0, 2, 2, 2, 2],
            "width": 2,
        },
        ((0, 1.0), (2, 2.5), (4, 4.0)),
        "exact: position 0 is never predicted and carries no weight",
    ),
)
VERSION = 1
