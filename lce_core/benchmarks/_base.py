"""What every benchmark is: its request, its result, its base class."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from numpy.typing import NDArray
from pydantic import model_validator

from lce_core.benchmarks._data import DataSet
from lce_core.data.sequences import Answers, Sequences
from lce_core.errors import SpecError
from lce_core.evaluation.loss_cache import LossCache
from lce_core.models import LanguageModel
from lce_core.registry import Plugin
from lce_core.reports import Progress, no_progress
from lce_core.statistics.estimates import Estimate

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from lce_core.data.held_out import HeldOutText
    from lce_core.evaluation.window_ranges import WindowRanges
    from lce_core.extension.extended_model import ExtendedModel

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
    sequences: Sequences = field(default_factory=Sequences)
    """What the cell takes through the model, for the cost model: windows, or prompts without their
    answers. What it shares with other prompts or cells counts each time."""
    prompts_sha256: str | None = None
    """Of the token ids of all prompts in their order, so that whoever builds them again can tell
    whether they are the same; None where a benchmark asks none."""
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False)
    """Raw numbers kept in the cell's folder, such as the NLL of every token, by name."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all sequences."""
        return self.sequences.num_tokens


@dataclass(frozen=True)
class CellRequest:
    """What a benchmark gets to evaluate one cell."""

    model: ExtendedModel
    tokenizer: PreTrainedTokenizerBase
    base_model: LanguageModel
    held_out: HeldOutText
    """Held-out text of the study's corpus, tokenised, by domain."""
    task: str
    eval_length: int
    """Tokens of context, generated ones included."""
    seed: int
    data_folders: Mapping[str, Path] = field(default_factory=dict)
    batch_tokens: int = 8192
    """Upper limit of tokens in one forward pass (execution, not identity); not heeded in bf16."""
    savings: bool = True
    """Stop answers that can no longer change their score, and process what prompts share once."""
    losses: LossCache = field(default_factory=LossCache)
    """Token losses that this model has computed for earlier cells."""
    ranges: WindowRanges | None = None
    """Commits the losses of a long cell over running text one range after the other; None: they
    are scored as if the cell was short."""
    prompt_folder: Path | None = None
    """Where prompts are kept for other processes and runs; None: in this process only."""
    report: Progress = no_progress
    """Called with (requests done, requests in all)."""


@dataclass(frozen=True)
class Form:
    """What a benchmark does in one of its profiles; subclasses carry what differs."""

    summary: str
    """One line for the documents."""

    def check(self, benchmark: Any) -> None:
        """Raises ValueError for parameters of the benchmark that have no effect in this form."""


class Benchmark(Plugin):
    """Base of all benchmarks."""

    unit: ClassVar[str]
    """"perplexity", "nats" or "accuracy" (0..1)."""
    seeded: ClassVar[bool]
    """Whether samples are drawn from the study's seed."""
    default_metric: ClassVar[str]
    """The metric shown where there is room for one."""
    forms: ClassVar[Mapping[Profile, Form]]
    """The profiles it offers, and what each of them does."""
    fills_length: ClassVar[bool] = False
    """What a cell's length means. True: its prompts take that many tokens, answers included. False:
    it is the most that a sequence may take, whose own length the data or the task decide."""
    scores_text: ClassVar[bool] = False
    """Whether a cell reads losses of running text, which it shares with others of its model."""
    data_on_demand: ClassVar[tuple[DataSet, ...]] = ()
    """Data sets that parameters can name, beside those that the defaults read."""
    profile: Profile = "clean"
    """Which of the forms of the benchmark is run; in every row of the catalog."""

    @model_validator(mode="after")
    def _offered(self) -> Self:
        if self.profile not in self.forms:
            offered = ", ".join(self.forms)
            raise SpecError(
                "profile",
                repr(self.profile),
                f"a profile that {self.plugin_name} offers: {offered}",
                "choose one of these",
            )
        self.form.check(self)
        return self

    @property
    def form(self) -> Form:
        """What the profile does."""
        return self.forms[self.profile]

    def tasks(self) -> tuple[str, ...]:
        """Tasks in order; each (task, length) is one cell."""
        raise NotImplementedError

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """Why the cell cannot be, decided without computing anything; None if it can."""
        return None

    def reads(self, task: str) -> tuple[DataSet, ...]:
        """What a task reads besides the held-out text, from folders that the user names."""
        return ()

    def data_names(self, task: str, data_folders: Mapping[str, Path]) -> tuple[str, ...]:
        """Names of the data sets that a task reads, as a cell records them."""
        names = (data_set.recorded_name(data_folders) for data_set in self.reads(task))
        return tuple(dict.fromkeys(names))

    def digest(self, task: str, data_folders: Mapping[str, Path]) -> str | None:
        """sha256 of a task's data sets; None if it reads none.

        Raises:
          UnavailableError: a data set is not on this machine; says how to get it.
          DataError: it is there and cannot be read.
        """
        digests = [data_set.digest(data_folders) for data_set in self.reads(task)]
        if len(digests) < 2:
            return digests[0] if digests else None
        return hashlib.sha256(" ".join(digests).encode()).hexdigest()

    def data_sequences(
        self,
        base_model: LanguageModel,
        task: str,
        eval_length: int,
        data_folders: Mapping[str, Path],
    ) -> Sequences | None:
        """`CellResult.sequences`, predicted for a task over data that is there.

        None where `num_tokens` knows as much.
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
        """Tokens of `CellResult.sequences`, predicted for `lce plan` without any data.

        Args:
          task: one of `tasks()`.
          eval_length: tokens of context.
          held_out_tokens: tokens of running text that the task reads, as `text_tokens` says.
        """
        raise NotImplementedError

    def text_tokens(self, task: str, held_out_tokens: int) -> int:
        """Tokens of running text that a task reads, predicted without it.

        Those of a domain, unless the task reads a data set, whose published size is known.
        """
        return held_out_tokens

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        """Part of the prompts' tokens that is left if what they begin with alike passes once.

        Args:
          task: one of `tasks()`.
          prompt_tokens: mean length of a prompt.
        """
        return 1.0

    def window_grid(self, task: str, eval_length: int) -> tuple[object, int] | None:
        """What a cell cuts windows from and every how many tokens, where it cuts one stream.

        Cells for which the first is equal read the same stream from its start.
        """
        return None

    def num_independent(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Samples of a cell that are independent of each other, predicted for `lce plan --power`.

        Prompts, unless overridden; at most so many where data decide which prompts share a
        document. 0 where nothing can be said.

        Args:
          task: one of `tasks()`.
          eval_length: tokens of context.
          held_out_tokens: tokens of running text that the task reads, as `text_tokens` says.
        """
        return self.answers(task).number

    def answers(self, task: str) -> Answers:
        """What a cell lets the model write, for `lce plan`; nothing unless overridden."""
        return Answers()


def score(metric: str, estimate: Estimate, *, higher_is_better: bool) -> Score:
    """The estimate as a row of the result."""
    return Score(
        metric, estimate.value, estimate.low, estimate.high, estimate.num_samples, higher_is_better
    )
