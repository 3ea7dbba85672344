"""Base class of benchmarks that score the model's loss on running text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lce_core.benchmarks._base import Benchmark, CellRequest, Form, Profile, Sample
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
from lce_core.evaluation.windows import Windows
from lce_core.models import LanguageModel

TINY_TOKENS = 16384
"""Tokens of text that the profile "tiny" reads."""
FAITHFUL_DOCUMENTS = 10
"""Documents of a data set that the profile "faithful" reads by default."""
DEFAULT_SPAN = 256
"""Default tokens of a bin of positions, or scored at the end of a window."""
SMALL_BYTES = 64 * 10**6
"""A cell stores the NLL of every token by default if the array is at most this large."""

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class TextForm(Form):
    """A profile: how much text it reads, and the stride and scored span of its windows."""

    stride: int | None = None
    """Tokens from one window's start to the next; None means the window's length."""
    max_tokens: int | None = None
    """Read only the first tokens of the text; None reads all."""
    max_documents: int | None = None
    """Read only the first documents of a data set; None reads all."""
    span_share: int | None = None
    """`span` is the model's trained context divided by this number; None: `DEFAULT_SPAN`."""

    def span(self, base_model: LanguageModel) -> int:
        """Return the default tokens of a bin of positions, or scored at the end of a window."""
        if self.span_share is None:
            return DEFAULT_SPAN
        return max(1, base_model.geometry.trained_context // self.span_share)


class TextBenchmark(Benchmark):
    """Base class of benchmarks that score the model's loss on text windows.

    Each domain of the study's held-out text and each data set is a task. A new benchmark defines
    `forms`, `num_tokens`, and `evaluate`, which scores windows of the tokens from `stream`.
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
    """Read only the first tokens of the text; None means 16,384 in tiny, else all."""
    max_documents: int | None = Field(default=None, gt=0)
    """Read only the first documents of a data set; None means 10 in faithful, else all."""
    store_nll: bool | None = None
    """Store every token's NLL (float16) in the cell's folder; None stores it if at most 64 MB."""

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
        """Return the number of windows without overlap, because only these are independent."""
        return min(self.token_limit() or held_out_tokens, held_out_tokens) // eval_length

    def published_documents(self, task: str) -> list[int]:
        """Predict the tokens of each document of a data set: the published mean for every one."""
        number, mean_tokens = PUBLISHED_SIZES[task]
        return [mean_tokens] * min(number, self.document_limit(task) or number)

    def data_sequences(
        self,
        base_model: LanguageModel,
        task: str,
        eval_length: int,
        data_folders: Mapping[str, Path],
    ) -> Sequences | None:
        """Estimate the number of windows of a data set from the size of its texts in bytes.

        Returns:
          The windows by length in tokens; None for a held-out domain.
        """
        if task not in self.data_sets:
            return None
        limit = self.document_limit(task)
        stream = sum(document_tokens(base_model, task, data_folders, at_most=limit))
        windows = self.num_tokens(task, eval_length, stream) // eval_length
        return Sequences({eval_length: windows})

    def stream_key(self, task: str) -> tuple[object, ...]:
        """Return a key of the task's tokens: cells with equal keys score the same tokens."""
        return task, task in self.data_sets, self.token_limit(), self.document_limit(task)

    def stream(self, request: CellRequest) -> tuple[NDArray[np.uint32], Documents | None]:
        """Return the task's tokens (tokens,), and its documents; None instead for a domain.

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
        """Return how many of the text's first tokens to read; None for all."""
        return self.max_tokens or self.form.max_tokens

    def document_limit(self, task: str) -> int | None:
        return self.max_documents or self.form.max_documents

    def stores(self, num_losses: int) -> bool:
        """Return True if a cell with this many token losses saves them in its folder."""
        if self.store_nll is not None:
            return self.store_nll
        return num_losses * np.dtype(np.float16).itemsize <= SMALL_BYTES


def pack_losses(starts: Iterable[int], rows: Iterable[NDArray[np.floating]]) -> Arrays:
    """Pack the token losses of windows into the arrays that a cell stores.

    Args:
      starts: index in the text of each window's first token.
      rows: NLL in nats of tokens 1..L-1 of each window; lengths L may differ.

    Returns:
      `nll` (losses,) float16, window after window; `start` (windows,) int64, the given starts; and
        `losses` (windows,) int64, the number of losses of each window.
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
    """Return a sample per window: its mean NLL, and the document in which the window starts."""
    names = repeat(None) if documents is None else documents.names_at(windows.starts)
    return tuple(
        Sample(index, windows.length, float(mean), reference=name, cluster=cluster)
        for index, (mean, name, cluster) in enumerate(zip(means, names, clusters, strict=False))
    )
