"""Benchmarks, one file each: what is asked, how an answer is scored, what a cell costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from lce_core.models import BaseModel
from lce_core.registry import Plugin, Registry

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from lce_core.extension import ExtendedModel
    from lce_core.held_out import HeldOutText

Profile = Literal["faithful", "clean", "fast", "tiny"]
"""As the papers did it; as it should be measured; same estimand, fewer tokens; for toy models."""


@dataclass(frozen=True)
class Score:
    """One number of a cell, in the benchmark's own unit."""

    metric: str
    value: float
    ci_low: float | None
    ci_high: float | None
    """Bounds of a 95 % interval over samples, documents or windows."""
    num_samples: int
    higher_is_better: bool


@dataclass(frozen=True)
class Sample:
    """One scored request, kept so that methods can be compared pairwise in SQL."""

    sample: int
    num_prompt_tokens: int
    score: float
    depth: float | None = None
    """Where the evidence lies, 0 (start) to 100 (end) per cent of the context."""
    prediction: str | None = None
    reference: str | None = None
    cluster: str | None = None
    """Unit of resampling for intervals (document, article); None: every sample by itself."""


@dataclass(frozen=True)
class CellResult:
    """All that a cell produced."""

    scores: tuple[Score, ...]
    samples: tuple[Sample, ...] = ()
    token_nll: tuple[tuple[int, float], ...] = ()
    """(first position of the bin, mean NLL in nats) pairs; empty where positions are not scored."""
    num_tokens: int = 0
    """Tokens that went through the model, for the cost model."""


@dataclass(frozen=True)
class CellRequest:
    """What a benchmark gets to evaluate one cell."""

    model: ExtendedModel
    tokenizer: PreTrainedTokenizerBase
    base_model: BaseModel
    held_out: HeldOutText
    """Held-out text of the study's corpus, tokenised, by domain."""
    task: str
    eval_length: int
    """Tokens of context, generated ones included."""
    seed: int
    data_folders: Mapping[str, Path] = field(default_factory=dict)
    batch_tokens: int = 8192
    """Upper limit of tokens in one forward pass (execution, not identity)."""
    report: Callable[[int, int], None] = lambda done, total: None
    """Called with (requests done, requests in all)."""


class Benchmark(Plugin):
    """Base of all benchmarks."""

    unit: ClassVar[str]
    """"perplexity", "nats" or "accuracy" (0..1)."""
    seeded: ClassVar[bool]
    """Whether samples are drawn from the study's seed."""
    default_metric: ClassVar[str]
    """The metric shown where there is room for one."""
    profile: Profile = "clean"
    """Which of the forms of the benchmark is run; in every row of the catalog."""

    def tasks(self) -> tuple[str, ...]:
        """Tasks in order; each (task, length) is one cell."""
        raise NotImplementedError

    def unavailable(self, base_model: BaseModel, task: str, eval_length: int) -> str | None:
        """Why the cell cannot be, decided without computing anything; None if it can."""
        return None

    def digest(self, data_folders: Mapping[str, Path], task: str) -> str | None:
        """sha256 of the data a task reads besides the held-out text; None if it reads none.

        Raises:
          UnavailableError: the data is not on this machine; says how to get it.
          DataError: it is there and cannot be read.
        """
        return None

    def evaluate(self, request: CellRequest) -> CellResult:
        """Scores one cell.

        Raises:
          UnavailableError: the cell turns out to be impossible; its message is the reason.
          NonFiniteError: a score is NaN or infinite.
        """
        raise NotImplementedError

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Tokens that pass through the model in one cell, predicted for `lce plan`.

        Args:
          task: one of `tasks()`.
          eval_length: tokens of context.
          held_out_tokens: tokens of held-out text in each domain.
        """
        raise NotImplementedError


BENCHMARKS: Registry[Benchmark] = Registry("lce_core.benchmarks", "BENCHMARK", Benchmark)
