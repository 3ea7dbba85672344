"""Perplexity within documents: Press et al.'s, YaRN's two, and the mean over documents.

Every window belongs to one document and starts with the tokenizer's beginning-of-text token, if the
tokenizer has one. The first window of a document scores all its tokens (without such a token, all
but the first), later windows their `stride` new tokens; the last window may be shorter. All metrics
follow from these losses:

  perplexity: exp of the mean NLL of all tokens (Press et al.): the metric to compare methods by,
    since every token has (nearly) the whole window as context
  perplexity_window_mean: exp of the mean over windows of the mean NLL of their scored tokens: all
    windows have equal weight (YaRN, GovReport)
  perplexity_document_mean: mean over documents of each one's perplexity (Base of RoPE Bounds)
  perplexity_truncated: exp of the mean NLL of first windows, over the documents that are at least
    as long as a window (YaRN, Proof-pile; absent if none is)

Set `min_document_tokens` to the longest length of the study, so that all lengths read the same
documents. Intervals: bootstrap over documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lce_core.benchmarks import (
    FAITHFUL_DOCUMENTS,
    TINY_TOKENS,
    CellData,
    CellRequest,
    CellResult,
    Examples,
    Profile,
    Sample,
    Score,
    Scored,
    Sequences,
    Source,
    TextBenchmark,
    calls,
    document_tokens,
    over_document_losses,
    over_documents,
    over_tokens,
    over_windows,
    pack_losses,
    score,
    scored_means,
    shifted,
    window_scores,
)
from lce_core.errors import SpecError, UnavailableError
from lce_core.evaluation.windows import Stream, Windows
from lce_core.models import LanguageModel

_YARN_MINIMUM = {"proof_pile": 131072, "govreport": 16384}
"""Minimum tokens of a document in YaRN's tables, by data set."""
_YARN_DOCUMENTS = {"govreport": 50}
"""Number of documents in YaRN's tables, where it is not `FAITHFUL_DOCUMENTS`."""


class PerplexityDocuments(TextBenchmark):
    """Perplexity over windows within single documents."""

    unit = "perplexity"
    default_metric = "perplexity"
    profiles = {
        "faithful": Profile(
            "stride 256 and YaRN's documents: the first 10 of Proof-pile with at least 131,072"
            " tokens, truncated; the first 50 of GovReport with at least 16,384; the first 10 of"
            " PG19",
            stride=256,
            max_documents=FAITHFUL_DOCUMENTS,
        ),
        "clean": Profile("stride 256, all documents", stride=256),
        "fast": Profile("stride = length, all documents"),
        "tiny": Profile("stride = length over the first 16,384 tokens", max_tokens=TINY_TOKENS),
    }

    stride: int | None = Field(default=None, gt=0)
    """Tokens from one window's start to the next; None means 256 (faithful, clean), or the length.
    """
    truncate: bool | None = None
    """Score only the first window of each document; None means True for proof_pile in faithful,
    else False."""
    min_document_tokens: int | None = Field(default=None, gt=0)
    """Skip documents with fewer tokens; None skips none, except in faithful, where it means YaRN's
    minimum: 131,072 for proof_pile, 16,384 for govreport."""

    @model_validator(mode="after")
    def _same_documents_at_all_lengths(self) -> Self:
        if self.truncate and self.min_document_tokens is None:
            raise SpecError(
                "min_document_tokens",
                "truncate without min_document_tokens",
                "the longest length of the study, so that all lengths read the same documents",
                "set min_document_tokens to that length",
            )
        return self

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        if reason := super().unavailable(base_model, task, eval_length):
            return reason
        minimum = self._minimum(task)
        if self._truncates(task) and eval_length > minimum:
            return (
                f"eval_length {eval_length}: a document of {minimum} tokens, which"
                " min_document_tokens accepts, would not fill a window. Raise min_document_tokens"
                f" to at least {eval_length}"
            )
        return None

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        whole = [held_out_tokens]
        documents = self.published_documents(task) if task in self.data_sets else whole
        return self._predicted(task, eval_length, self._limited(documents)).num_tokens

    def num_independent(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        if task in self.data_sets:
            return sum(map(bool, self._limited(self.published_documents(task))))
        return super().num_independent(task, eval_length, held_out_tokens)

    def data_samples(self, cell: CellData) -> int | None:
        if cell.task not in self.data_sets:
            return None
        return len(self.all_documents(cell, self._minimum(cell.task)))

    def published_documents(self, task: str) -> list[int]:
        least = self._minimum(task)
        return [max(least, tokens) for tokens in super().published_documents(task)]

    def data_sequences(self, cell: CellData) -> Sequences | None:
        if cell.task not in self.data_sets:
            return None
        sizes = document_tokens(
            cell.base_model,
            cell.task,
            cell.data_folders,
            at_least=self._minimum(cell.task),
            at_most=self.document_limit(cell.task),
        )
        return self._predicted(cell.task, cell.eval_length, self._limited(sizes))

    def evaluate(self, request: CellRequest) -> CellResult:
        task = request.task
        documents = self.documents(
            request,
            at_least=self._minimum(task),
            at_most=self.document_limit(task),
            max_tokens=self.setting("max_tokens"),
        )
        before = documents.bos
        cuts = cut_documents(
            [len(ids) for ids in documents.tokens],
            request.eval_length,
            self.stride_at(request.eval_length),
            before=before is not None,
            truncate=self._truncates(task),
        )
        if not cuts:
            raise UnavailableError(
                f"task {task!r}",
                f"no document that fills a window of {request.eval_length} tokens",
                "at least one such document",
                "use longer documents or shorter lengths",
            )
        rows = document_losses(request, Stream(np.concatenate(documents.tokens)), cuts, before)
        means = np.array(
            [scored_means(row[None], cut.scored)[0] for cut, row in zip(cuts, rows, strict=True)]
        )
        names = [documents.names[cut.document] for cut in cuts]
        stored = self.stores(sum(map(len, rows)))
        return CellResult(
            scores=_scores(cuts, means, names),
            samples=tuple(
                Sample(index, cut.length, float(mean), reference=name, cluster=name)
                for index, (cut, mean, name) in enumerate(zip(cuts, means, names, strict=True))
            ),
            sequences=Sequences.of(cut.length for cut in cuts),
            arrays=pack_losses((cut.start for cut in cuts), rows) if stored else {},
        )

    def document_limit(self, task: str) -> int | None:
        if self.max_documents is None and self.profile == "faithful" and task in _YARN_DOCUMENTS:
            return _YARN_DOCUMENTS[task]
        return super().document_limit(task)

    def _limited(self, sizes: Sequence[int]) -> list[int]:
        """Return the tokens to use of each document: `max_tokens` tokens of all in order."""
        ends = np.minimum(np.cumsum(sizes), self.setting("max_tokens") or sum(sizes))
        return list(map(int, np.diff(ends, prepend=0)))

    def _predicted(self, task: str, length: int, sizes: Sequence[int]) -> Sequences:
        truncate = self._truncates(task)
        cuts = cut_documents(sizes, length, self.stride_at(length), before=False, truncate=truncate)
        return Sequences.of(cut.length for cut in cuts)

    def _truncates(self, task: str) -> bool:
        if self.truncate is not None:
            return self.truncate
        return self.profile == "faithful" and task == "proof_pile"

    def _minimum(self, task: str) -> int:
        if self.min_document_tokens is not None:
            return self.min_document_tokens
        return _YARN_MINIMUM.get(task, 1) if self.profile == "faithful" else 1


@dataclass(frozen=True)
class Cut:
    """One window of a document."""

    document: int
    start: int
    """Index of the window's first text token in the documents without special tokens."""
    length: int
    """Number of tokens, including a beginning-of-text token."""
    scored: int
    """Number of tokens at the window's end that no earlier window has scored."""
    fills: bool
    """True for the first window of its document if it has the full window length."""


def cut_documents(
    sizes: Sequence[int], length: int, stride: int, *, before: bool, truncate: bool
) -> list[Cut]:
    """Return the windows of all documents, in order. A document's last window may be shorter.

    `sizes` exclude special tokens; `length` includes the one with which windows begin if `before`.
    `truncate` returns only the first window of each document that fills it.
    """
    room = length - before
    cuts, offset = [], 0
    for document, size in enumerate(sizes):
        start = done = 0
        while done < size and not (truncate and (start or size < room)):
            end = min(start + room, size)
            # The first token of a window is only predicted if a special token precedes it.
            scored = min(end - done, end - start - 1 + before)
            if scored:
                fills = start == 0 and end == room
                cuts.append(Cut(document, offset + start, end - start + before, scored, fills))
            done, start = end, start + min(stride, room)
        offset += size
    return cuts


def document_losses(
    request: CellRequest, stream: Stream, cuts: Sequence[Cut], before: int | None
) -> list[NDArray[np.float32]]:
    """Return the NLL in nats of tokens 1..L-1 of each window, in the order of `cuts`.

    `stream` has the documents without special tokens; `before` is the special token of each window.
    """
    rows, done = [np.zeros(0, np.float32)] * len(cuts), 0
    lengths, starts = np.array([(cut.length, cut.start) for cut in cuts]).T
    for length in np.unique(lengths)[::-1].tolist():
        members = np.flatnonzero(lengths == length)
        report = shifted(request.report, done, len(cuts))
        windows = Windows(stream, starts[members], length, before)
        for first, found in window_scores(request, windows, report):
            for index, row in zip(members[first : first + len(found)], found.nll, strict=True):
                rows[index] = row
        done += len(members)
    return rows


def _scores(
    cuts: Sequence[Cut], means: NDArray[np.float64], names: Sequence[str]
) -> tuple[Score, ...]:
    tokens = np.array([cut.scored for cut in cuts])
    whole = Scored(means, tokens, names)
    found = [
        ("perplexity", over_tokens(whole)),
        ("perplexity_window_mean", over_windows(whole)),
        ("perplexity_document_mean", over_documents(whole)),
    ]
    full = [index for index, cut in enumerate(cuts) if cut.fills]
    if full:
        first = Scored(means[full], tokens[full], [names[index] for index in full])
        found.append(("perplexity_truncated", over_document_losses(first)))
    return tuple(score(name, estimate, higher_is_better=False) for name, estimate in found)


def scored_tokens(size: int, length: int, stride: int) -> tuple[int, ...]:
    """Return the scored tokens of each window of a document; windows start with a special token."""
    cuts = cut_documents([size], length, stride, before=True, truncate=False)
    return tuple(cut.scored for cut in cuts)


BENCHMARK = PerplexityDocuments
SOURCE = Source(
    paper="arXiv:2309.00071",
    place="Tables 1, 5 to 8; perplexity: arXiv:2108.12409 (sliding window evaluation);"
    " perplexity_document_mean: arXiv:2405.14591 (PG19)",
    reference="github.com/jquesnelle/yarn@995db5b575e75230b3384d658f8b944c9662f775",
    differs="documents are tokenised by the base model's tokenizer instead of read as token ids; if"
    " that tokenizer has no beginning-of-text token, windows start without one",
)
EVIDENCE = tuple(
    calls(scored_tokens, scored, origin, size=size, length=length, stride=256)
    for size, length, scored, origin in (
        (
            32768,
            32768,
            (32767, 1),
            "YaRN's loop, a special token before each window: 32767 tokens fit, then one is new",
        ),
        (1000, 513, (512, 256, 232), "starts 0, 256 and 512, ends 512, 768 and 1000"),
    )
)
EXAMPLES: Examples = (
    {"max_tokens": 3000},
    {"domains": (), "data_sets": ("govreport",), "min_document_tokens": 1500},
)
VERSION = 1
