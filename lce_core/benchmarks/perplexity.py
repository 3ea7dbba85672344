"""Sliding-window perplexity of concatenated documents, over all positions or the last ones only.

Windows of the cell's length start every `stride` tokens and may span several documents. Each
forward pass yields three metrics:

  perplexity: exp of the mean over windows of each window's mean NLL over all its positions. It
    falls with the length because later positions have more context.
  perplexity_last: exp of the mean NLL of each window's last `last` tokens, each of which has
    (nearly) the whole window as context. With stride = last, every token of the stream is scored
    once, including all of the first window: the definition of Press et al. With stride = n * last,
    it scores every n-th of these windows.
  next_token_accuracy: mean over windows of the fraction of positions whose most likely token is the
    right one: LCEG's val_acc. Like its script, `faithful` also counts the prediction of the token
    after each window, which is not part of the losses.

Unextended models are also evaluated beyond their trained context, because their failure is a
result; only the maximum length of a method makes a cell unavailable. Intervals: bootstrap over
blocks of overlapping windows.
"""

import math

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
    Scored,
    Source,
    StreamBenchmark,
    calls,
    num_windows,
    over_tokens,
    over_windows,
    pack_losses,
    score,
    scored_means,
    window_samples,
    window_scores,
)
from lce_core.models import LanguageModel
from lce_core.statistics.estimates import bootstrap_mean

LCEG_E = 2.71828
"""Value of e in LCEG's script; it changes a perplexity by less than 0.001 %."""


class Perplexity(StreamBenchmark):
    """Perplexity over windows of concatenated documents."""

    unit = "perplexity"
    default_metric = "perplexity"
    profiles = {
        "faithful": Profile(
            "stride 256, without the last window and with 2.71828 for e, as in LCEG's script",
            stride=256,
            drop_last=True,
            max_documents=FAITHFUL_DOCUMENTS,
        ),
        "clean": Profile("stride 256, all windows", stride=256),
        "fast": Profile("stride = length"),
        "tiny": Profile(
            "stride = length over the first 16,384 tokens; perplexity_last scores a quarter of the"
            " trained context",
            max_tokens=TINY_TOKENS,
            span_share=4,
        ),
    }

    stride: int | None = Field(default=None, gt=0)
    """Tokens from one window's start to the next; None means 256 (faithful, clean), or the length.
    """
    last: int | None = Field(default=None, gt=0)
    """Tokens at a window's end that `perplexity_last` scores; None means 256, or a quarter of the
    trained context in tiny."""

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        last = self.span("last", base_model)
        if eval_length > last:
            return None
        return (
            f"eval_length {eval_length}: a window must hold the {last} tokens to score and one"
            f" before them, at least {last + 1} tokens"
        )

    def evaluate(self, request: CellRequest) -> CellResult:
        length, last = request.eval_length, self.span("last", request.base_model)
        faithful = self.profile == "faithful"
        windows, documents = self.windows(request)
        means, last_means, right = (np.empty(len(windows)) for _ in range(3))
        predicted = length if faithful else length - 1
        scored = np.full(len(windows), last)
        kept: list[NDArray[np.float16]] = []
        for first, found in window_scores(request, windows):
            nll, rows = found.nll, slice(first, first + len(found))
            right[rows] = found.hits[:, :predicted].mean(axis=1)
            means[rows] = scored_means(nll, length - 1)
            last_means[rows] = scored_means(nll, last)
            if self.stores(len(windows) * (length - 1)):
                kept.extend(nll.astype(np.float16))
        # With stride = last every token is scored once, including all of the first window.
        if self.stride_at(length) == last:
            scored[0], last_means[0] = length - 1, means[0]
        clusters = self.window_clusters(request, windows, documents)
        base = LCEG_E if faithful else math.e
        overall = over_windows(Scored(means, np.full(len(windows), length - 1), clusters), base)
        at_end = over_tokens(Scored(last_means, scored, clusters), base)
        return CellResult(
            scores=(
                score("perplexity", overall, higher_is_better=False),
                score("perplexity_last", at_end, higher_is_better=False),
                score(
                    "next_token_accuracy",
                    bootstrap_mean(right, clusters=clusters),
                    higher_is_better=True,
                ),
            ),
            samples=window_samples(windows, means, documents, clusters),
            sequences=windows.sequences,
            checks=self.window_checks(request, windows),
            arrays=pack_losses(windows.starts, kept) if kept else {},
        )


def lceg_windows(stream_tokens: int, length: int, stride: int) -> int:
    return num_windows(stream_tokens, length, stride, drop_last=True)


BENCHMARK = Perplexity
SOURCE = Source(
    paper="arXiv:2409.12181",
    place="Tables 2, 5, 9, 10; perplexity_last: arXiv:2108.12409 (sliding window evaluation)",
    reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="LCEG did not record which books and papers it read: here data sets are read in file"
    " order, and held-out domains are the study's text",
)
EVIDENCE = tuple(
    calls(lceg_windows, count, origin, stream_tokens=tokens, length=length, stride=256)
    for tokens, length, count, origin in (
        (1_050_000, 32768, 3973, "count of the loop in LCEG's script for a stream of 1.05 M ids"),
        (4096, 2048, 7, "starts 0, 256, ..., 1792 without the last"),
    )
)
EXAMPLES: Examples = ({"max_tokens": 3000}, {"domains": (), "data_sets": ("pg19",)})
VERSION = 3
