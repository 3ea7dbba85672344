"""Base class of benchmarks that score the model's loss on running text."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import repeat
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lce_core.benchmarks._base import Benchmark, CellData, CellRequest, Sample
from lce_core.benchmarks._data import DataSet
from lce_core.benchmarks._text.documents import (
    DATA_SETS,
    PUBLISHED_SIZES,
    Documents,
    document_tokens,
    held_out_documents,
    read_documents,
)
from lce_core.benchmarks._text.windows import cut_windows, num_windows
from lce_core.data.sequences import Sequences
from lce_core.errors import SpecError, UnavailableError
from lce_core.evaluation.long_cell import NUM_RANGES
from lce_core.evaluation.windows import Windows
from lce_core.models import LanguageModel

TINY_TOKENS = 16384
FAITHFUL_DOCUMENTS = 10
DEFAULT_SPAN = 256
"""Default tokens of a bin of positions, or of a window's end that `perplexity_last` scores."""
SMALL_BYTES = 64 * 10**6
"""Largest float16 array of token NLLs, in bytes, that a cell stores by default."""

Arrays = dict[str, NDArray[Any]]


class OverText(Benchmark):
    """Base class of benchmarks whose tasks are domains of the held-out text, and data sets."""

    data_on_demand = tuple(DATA_SETS.values())
    domains: tuple[str, ...] = ("code", "prose")
    """Domains of the study's corpus, one task each."""
    data_sets: tuple[Literal["pg19", "proof_pile", "govreport"], ...] = ()
    """Data sets, one task each, with folders named in `data_folders`."""

    def tasks(self) -> tuple[str, ...]:
        return self.domains + self.data_sets

    def held_out_domain(self, task: str) -> str | None:
        return task if task in self.domains else None

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return (DATA_SETS[task],) if task in self.data_sets else ()

    def documents(
        self,
        request: CellRequest,
        *,
        at_least: int = 1,
        at_most: int | None = None,
        max_tokens: int | None = None,
    ) -> Documents:
        """Return the task's documents of `at_least` tokens, at most `at_most` of a data set.

        Together they have at most `max_tokens` tokens, to which the last one is cut.
        """
        if request.task in self.data_sets:
            return read_documents(
                request, at_least=at_least, at_most=at_most, max_tokens=max_tokens
            )
        self.require_domain(request)
        return held_out_documents(request, at_least=at_least, max_tokens=max_tokens)

    def require_domain(self, request: CellRequest) -> None:
        known = request.held_out.domains
        if request.task not in known:
            raise UnavailableError(
                f"domain {request.task!r}",
                "a domain that the study's corpus does not have",
                f"one of its domains: {', '.join(known)}",
                "set `domains` to one or more of these",
            )


class TextBenchmark(OverText):
    """Base class of benchmarks that score the model's loss on text windows.

    A new benchmark defines `profiles`, `num_tokens` and `evaluate`, which scores windows of the
    tokens from `stream`.
    """

    kind = "text"
    seeded = False
    scores_text = True
    max_tokens: int | None = Field(default=None, gt=0)
    """Maximum number of tokens to read, from the start of the text; None means 16,384 in tiny, else
    all."""
    max_documents: int | None = Field(default=None, gt=0)
    """Maximum number of documents to read, from the start of a data set; None means 10 in faithful,
    else all."""
    store_nll: bool | None = None
    """Store every token's NLL (float16) in the cell's folder; None stores it if it takes at most
    64 MB."""

    def num_parts(self, task: str, *, half: bool) -> int:
        return NUM_RANGES

    @model_validator(mode="after")
    def _some_text(self) -> Self:
        if not self.domains and not self.data_sets:
            raise SpecError(
                "domains",
                "neither domains nor data_sets",
                "at least one domain or data set, because each of them is a task",
                "add a domain to domains or a data set to data_sets",
            )
        return self

    def text_tokens(self, task: str, held_out_tokens: int) -> int:
        if task in self.data_sets:
            return sum(self.published_documents(task))
        return self.limited(held_out_tokens)

    def num_independent(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Return the number of windows without overlap, at most one of each document."""
        windows = self.limited(held_out_tokens) // eval_length
        if task not in self.data_sets:
            return windows
        return min(windows, len(self.published_documents(task)))

    def limited(self, num_tokens: int) -> int:
        return min(self.setting("max_tokens") or num_tokens, num_tokens)

    def data_samples(self, cell: CellData) -> int | None:
        if cell.task not in self.data_sets:
            return None
        sizes = self.all_documents(cell)
        return min(len(sizes), sum(sizes) // cell.eval_length)

    def all_documents(self, cell: CellData, at_least: int = 1) -> list[int]:
        """Estimate the tokens of each document of a data set, from the files if they are here."""
        try:
            return document_tokens(cell.base_model, cell.task, cell.data_folders, at_least=at_least)
        except UnavailableError:
            number, mean_tokens = PUBLISHED_SIZES[cell.task]
            return [mean_tokens] * number

    def published_documents(self, task: str) -> list[int]:
        number, mean_tokens = PUBLISHED_SIZES[task]
        return [mean_tokens] * min(number, self.document_limit(task) or number)

    def data_sequences(self, cell: CellData) -> Sequences | None:
        task, length, limit = cell.task, cell.eval_length, self.document_limit(cell.task)
        if task not in self.data_sets:
            return None
        stream = sum(document_tokens(cell.base_model, task, cell.data_folders, at_most=limit))
        return Sequences({length: self.num_tokens(task, length, stream) // length})

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        if eval_length >= 2:
            return None
        return f"eval_length {eval_length}: a window needs at least 2 tokens"

    def stride_at(self, eval_length: int) -> int:
        """Return the tokens from one window's start to the next: the setting, or the length."""
        return int(self.setting("stride") or eval_length)

    def stream_key(self, task: str) -> tuple[object, ...]:
        """Return a cache key of the task's tokens: equal keys mean equal tokens."""
        limits = self.setting("max_tokens"), self.document_limit(task)
        return task, task in self.data_sets, *limits

    def stream(self, request: CellRequest) -> tuple[NDArray[np.uint32], Documents | None]:
        """Return the token ids to score (tokens,), and the documents of a data set."""
        limit = self.setting("max_tokens")
        if request.task not in self.data_sets:
            self.require_domain(request)
            return request.held_out.stream(request.task)[:limit], None
        at_most = self.document_limit(request.task)
        documents = self.documents(request, at_most=at_most, max_tokens=limit)
        return documents.joined()[:limit], documents

    def window_clusters(
        self, request: CellRequest, windows: Windows, documents: Documents | None
    ) -> list[str]:
        """Return the cluster of each window, by which dependent windows are resampled together.

        Windows depend on each other if they start in the same document or overlap. Of the groupings
        by document and by blocks of one window length, the one with fewer clusters counts.
        """
        if documents is None:
            starts = request.held_out.document_starts(request.task)
        else:
            starts = documents.starts()
        of_document = np.searchsorted(starts, windows.starts, side="right") - 1
        blocks = windows.starts // windows.length
        kind, numbers = min(
            ("document", of_document), ("block", blocks), key=lambda one: len(np.unique(one[1]))
        )
        return [f"{kind} {number}" for number in numbers]

    def document_limit(self, task: str) -> int | None:
        limit: int | None = self.setting("max_documents")
        return limit

    def span(self, name: str, base_model: LanguageModel) -> int:
        """Return the setting `name`, a number of tokens.

        The default is `DEFAULT_SPAN`, or the trained context divided by a profile's `span_share`.
        """
        share = self.setting("span_share")
        trained = base_model.geometry.trained_context
        return int(self.setting(name) or (max(1, trained // share) if share else DEFAULT_SPAN))

    def stores(self, num_losses: int) -> bool:
        if self.store_nll is not None:
            return self.store_nll
        return num_losses * np.dtype(np.float16).itemsize <= SMALL_BYTES


class StreamBenchmark(TextBenchmark):
    """Base class of benchmarks whose windows may begin in the middle of a document.

    A profile with `drop_last` leaves out the last window (`num_windows`).
    """

    begin: bool = False
    """Replace the last token of each window by the beginning-of-text token before the first one.
    Models whose training texts all begin with this token, such as Gemma, need it."""

    @property
    def lacks_begin(self) -> bool:
        return not self.begin

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        stream, stride = self.limited(held_out_tokens), self.stride_at(eval_length)
        drop_last = bool(self.setting("drop_last"))
        return eval_length * num_windows(stream, eval_length, stride, drop_last=drop_last)

    def window_grid(self, task: str, eval_length: int) -> tuple[object, int] | None:
        return (*self.stream_key(task), self.begin), self.stride_at(eval_length)

    def windows(self, request: CellRequest) -> tuple[Windows, Documents | None]:
        """Cut the task's text into windows; also return the documents of a data set."""
        stream, documents = self.stream(request)
        stride, drop_last = self.stride_at(request.eval_length), bool(self.setting("drop_last"))
        windows = cut_windows(stream, request.eval_length, stride, drop_last=drop_last)
        if not self.begin:
            return windows, documents
        if request.tokenizer.bos_token_id is None:
            raise UnavailableError(
                f"{self.plugin_name}.begin",
                "a tokenizer without a beginning-of-text token",
                "such a token before each window",
                "remove `begin`",
            )
        return replace(windows, before=request.tokenizer.bos_token_id), documents

    def window_checks(self, request: CellRequest, windows: Windows) -> dict[str, int]:
        """Return the columns of the catalog's view `prompt_checks` that are not 0."""
        lacks = self.lacks_begin and request.base_model.architecture.needs_begin
        return {"num_without_begin": len(windows)} if lacks else {}


def pack_losses(starts: Iterable[int], rows: Iterable[NDArray[np.floating]]) -> Arrays:
    """Pack the token losses of windows into the arrays that a cell stores.

    `rows` are the NLLs in nats of tokens 1..L-1 of each window; L may differ. Returns `nll`
    (losses,) float16, one window after the other, `start` (windows,) int64, the windows' first
    tokens, and `losses` (windows,) int64, the number of losses of each.
    """
    halves = [np.asarray(row, dtype=np.float16) for row in rows]
    return {
        "nll": np.concatenate(halves),
        "start": np.fromiter(starts, dtype=np.int64),
        "losses": np.array([len(row) for row in halves], dtype=np.int64),
    }


def window_samples(
    windows: Windows,
    means: NDArray[np.float64],
    documents: Documents | None,
    clusters: Iterable[str | None] = repeat(None),
) -> tuple[Sample, ...]:
    """Return one sample per window; its `reference` is the document in which the window starts."""
    names = repeat(None) if documents is None else documents.names_at(windows.starts)
    return tuple(
        Sample(index, windows.length, float(mean), reference=name, cluster=cluster)
        for index, (mean, name, cluster) in enumerate(zip(means, names, clusters, strict=False))
    )
