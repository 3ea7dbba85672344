"""Shared code of benchmarks that score running text: sources, amount of text, stored losses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lce_core.benchmarks._base import Benchmark, CellRequest, Form, Profile
from lce_core.benchmarks._data import DataSet
from lce_core.benchmarks._text.documents import (
    DATA_SETS,
    PUBLISHED_SIZES,
    Documents,
    document_tokens,
    read_documents,
)
from lce_core.data.sequences import Sequences
from lce_core.errors import SpecError, UnavailableError
from lce_core.models import LanguageModel

TINY_TOKENS = 16384
FAITHFUL_DOCUMENTS = 10
DEFAULT_SPAN = 256
SMALL_BYTES = 64 * 10**6

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class TextForm(Form):
    """How much text a profile reads, and the stride of its windows."""

    stride: int | None = None
    """Tokens from one window's start to the next; None means the window's length."""
    max_tokens: int | None = None
    """Tokens to use from the start of the text; None means all."""
    max_documents: int | None = None
    """Documents to use from the start of a data set; None means all."""
    span_share: int | None = None
    """The default span is the trained context divided by this; None means 256 tokens."""

    def span(self, base_model: LanguageModel) -> int:
        """Return the default span: tokens per bin of positions, or scored at a window's end."""
        if self.span_share is None:
            return DEFAULT_SPAN
        return max(1, base_model.geometry.trained_context // self.span_share)


class TextBenchmark(Benchmark):
    """Base of benchmarks that score running text; each domain or data set is a task.

    Documents are read in order. A new benchmark defines `forms`, `evaluate`, which scores windows
    over `stream`, and `num_tokens`.
    """

    seeded: ClassVar[bool] = False
    scores_text: ClassVar[bool] = True
    forms: ClassVar[Mapping[Profile, TextForm]]
    data_on_demand: ClassVar[tuple[DataSet, ...]] = tuple(DATA_SETS.values())
    domains: tuple[str, ...] = ("code", "prose")
    """Domains of the study's corpus, one task each."""
    data_sets: tuple[Literal["pg19", "proof_pile", "govreport"], ...] = ()
    """Data sets, one task each, with folders named in `data_folders`."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Tokens to use from the start of the text; None means all, or as the profile says."""
    max_documents: int | None = Field(default=None, gt=0)
    """Documents to use from the start of a data set; None means 10 in faithful, else all."""
    store_nll: bool | None = None
    """Store every token's NLL (float16) in the cell's folder; None stores up to 64 MB."""

    @model_validator(mode="after")
    def _some_text(self) -> TextBenchmark:
        if not self.domains and not self.data_sets:
            raise SpecError(
                "domains",
                "neither domains nor data_sets",
                "at least 1 task named by both together",
                "name a domain or a data set",
            )
        return self

    @property
    def form(self) -> TextForm:
        return self.forms[self.profile]

    def tasks(self) -> tuple[str, ...]:
        return self.domains + self.data_sets

    def reads(self, task: str) -> tuple[DataSet, ...]:
        """Return the task's data set; domains read none."""
        return (DATA_SETS[task],) if task in self.data_sets else ()

    def text_tokens(self, task: str, held_out_tokens: int) -> int:
        """Predict the tokens of the text: `held_out_tokens`, or a data set's published size."""
        return sum(self.published_documents(task)) if task in self.data_sets else held_out_tokens

    def num_independent(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Return how many windows fit side by side; overlapping windows are not independent."""
        return min(self.token_limit() or held_out_tokens, held_out_tokens) // eval_length

    def published_documents(self, task: str) -> list[int]:
        """Return the published mean tokens of a document, once for each document that is read."""
        number, mean_tokens = PUBLISHED_SIZES[task]
        return [mean_tokens] * min(number, self.document_limit(task) or number)

    def data_sequences(
        self,
        base_model: LanguageModel,
        task: str,
        eval_length: int,
        data_folders: Mapping[str, Path],
    ) -> Sequences | None:
        """Predict the windows from the bytes of the data set's files; None for a domain."""
        if task not in self.data_sets:
            return None
        limit = self.document_limit(task)
        stream = sum(document_tokens(base_model, task, data_folders, at_most=limit))
        windows = self.num_tokens(task, eval_length, stream) // eval_length
        return Sequences({eval_length: windows})

    def stream_key(self, task: str) -> tuple[object, ...]:
        """Return the key of the task's token stream: equal keys mean the same tokens."""
        return task, task in self.data_sets, self.token_limit(), self.document_limit(task)

    def stream(self, request: CellRequest) -> tuple[NDArray[np.uint32], Documents | None]:
        """Return the task's text as one stream (tokens,), and its documents if it is a data set.

        Raises:
          UnavailableError: if the corpus has no such domain, or the data set is missing.
          DataError: if the data set cannot be read.
        """
        if request.task not in self.data_sets:
            self.require_domain(request)
            return request.held_out.stream(request.task)[: self.token_limit()], None
        documents = read_documents(
            request,
            request.task,
            at_most=self.document_limit(request.task),
            max_tokens=self.token_limit(),
        )
        return documents.joined()[: self.token_limit()], documents

    def require_domain(self, request: CellRequest) -> None:
        """Raise UnavailableError if the corpus has no domain of the task's name."""
        known = request.held_out.domains
        if request.task not in known:
            raise UnavailableError(
                f"domain {request.task!r}",
                "no such domain in the held-out text",
                f"one of its domains: {', '.join(known)}",
                "name one of these in `domains`",
            )

    def token_limit(self) -> int | None:
        """Return how many tokens to use from the start of the text; None means all."""
        return self.max_tokens or self.form.max_tokens

    def document_limit(self, task: str) -> int | None:
        return self.max_documents or self.form.max_documents

    def stores(self, num_losses: int) -> bool:
        """Return True if a cell with this many token losses stores them (see `store_nll`)."""
        if self.store_nll is not None:
            return self.store_nll
        return num_losses * np.dtype(np.float16).itemsize <= SMALL_BYTES


def pack_losses(starts: Iterable[int], rows: Iterable[NDArray[np.floating]]) -> Arrays:
    """Pack the losses of windows of any length into the arrays that a cell stores.

    Args:
      starts: first token of each window in the text.
      rows: NLL of tokens 1..L-1 of each window.

    Returns:
      `nll` float16, window after window; `start` and `losses` (windows,) int64, each window's first
        token and number of losses.
    """
    halves = [np.asarray(row, dtype=np.float16) for row in rows]
    return {
        "nll": np.concatenate(halves),
        "start": np.fromiter(starts, dtype=np.int64),
        "losses": np.array([len(row) for row in halves], dtype=np.int64),
    }
