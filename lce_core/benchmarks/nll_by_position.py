"""Negative log-likelihood (NLL) by position, which shows where a method stops using its context.

The text of a domain or data set is cut into windows of the cell's length without overlap. The
benchmark `perplexity` with stride = length scores the same windows, so a worker that runs both
computes the losses once. `token_nll` stores the mean NLL of each bin of window positions. The
metrics are the mean over all positions (`nll`) and over the last quarter of the window
(`nll_last_quarter`), with bootstrap intervals over windows.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lce_core.benchmarks import (
    FAITHFUL_DOCUMENTS,
    TINY_TOKENS,
    CellRequest,
    CellResult,
    Examples,
    Profile,
    Source,
    StreamBenchmark,
    calls,
    pack_losses,
    score,
    window_samples,
    window_scores,
)
from lce_core.evaluation.windows import Windows
from lce_core.statistics.estimates import bootstrap_mean


class NllByPosition(StreamBenchmark):
    """Mean negative log-likelihood (NLL) of tokens by their position in the window."""

    unit = "nats"
    default_metric = "nll"
    profiles = {
        "faithful": Profile(
            "the unextended model reads chunks of its trained context, as in LCEG's figure",
            max_documents=FAITHFUL_DOCUMENTS,
        ),
        "clean": Profile("every method reads whole windows"),
        "fast": Profile("the same as clean"),
        "tiny": Profile(
            "the first 16,384 tokens, bins of an eighth of the trained context",
            max_tokens=TINY_TOKENS,
            span_share=8,
        ),
    }

    bin_width: int | None = Field(default=None, gt=0)
    """Positions per bin; None means 256, or an eighth of the trained context in tiny."""

    def evaluate(self, request: CellRequest) -> CellResult:
        length = request.eval_length
        windows, documents = self.windows(request)
        losses = self._losses(request, windows)
        seen, quarter = ~np.isnan(losses), min(length - 1, 3 * length // 4)
        totals = np.where(seen, losses, 0.0).sum(axis=0, dtype=np.float64)
        counts = seen.sum(axis=0, dtype=np.int64)
        means = np.asarray(np.nanmean(losses, axis=1, dtype=np.float64))
        ends = np.asarray(np.nanmean(losses[:, quarter:], axis=1, dtype=np.float64))
        clusters = self.window_clusters(request, windows, documents)
        stored = pack_losses(windows.starts, losses[:, 1:]) if self.stores(losses.size) else {}
        return CellResult(
            scores=tuple(
                score(metric, bootstrap_mean(of, clusters=clusters), higher_is_better=False)
                for metric, of in (("nll", means), ("nll_last_quarter", ends))
            ),
            samples=window_samples(windows, means, documents, clusters),
            token_nll=bin_means(totals, counts, self.span("bin_width", request.base_model)),
            sequences=windows.sequences,
            checks=self.window_checks(request, windows),
            arrays=stored,
        )

    def _losses(self, request: CellRequest, windows: Windows) -> NDArray[np.float32]:
        """Return the NLL in nats by position (windows, L), NaN where a chunk starts.

        A chunk is the text that the model reads at once: the whole window, or less in `faithful`.
        """
        chunk = request.eval_length
        if self.profile == "faithful" and request.model.method.family == "none":
            chunk = min(chunk, request.base_model.geometry.trained_context)
        losses = np.full((len(windows), windows.length), np.nan, dtype=np.float32)
        # A last chunk of one token has nothing to predict.
        for start in range(0, windows.length - 1, chunk):
            size = min(chunk, windows.length - start)
            piece = replace(windows, starts=windows.starts + start, length=size)
            for first, found in window_scores(request, piece):
                losses[first : first + len(found), start + 1 : start + size] = found.nll
        return losses


def bin_means(
    totals: NDArray[np.float64], counts: NDArray[np.int64], width: int
) -> tuple[tuple[int, float], ...]:
    """Return (first position, mean loss) of each bin of `width` positions, skipping empty bins."""
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
    differs="LCEG released no script for this figure; here windows and bins do not overlap",
)
EVIDENCE = (
    calls(
        bin_means,
        ((0, 1.0), (2, 2.5), (4, 4.0)),
        "exact: position 0 is never predicted, so it has no weight",
        totals=[0.0, 2.0, 4.0, 6.0, 8.0],
        counts=[0, 2, 2, 2, 2],
        width=2,
    ),
)
EXAMPLES: Examples = ({"max_tokens": 3000}, {"domains": (), "data_sets": ("proof_pile",)})
VERSION = 2
