"""`Benchmark`, the base class of all benchmarks, with its input `CellRequest` and its `CellResult`.

A cell is one task of a benchmark at one context length, for one method, base model and seed.
"""

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
from lce_core.progress import Progress, no_progress
from lce_core.registry import Plugin
from lce_core.statistics.estimates import Estimate

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from lce_core.data.held_out import HeldOutText
    from lce_core.evaluation.window_ranges import WindowRanges
    from lce_core.extension.extended_model import ExtendedModel

Profile = Literal["faithful", "clean", "fast", "tiny"]
"""Variant of a benchmark. "faithful" reproduces the papers' scripts, "clean" avoids their known
flaws, "fast" is "clean" with fewer samples, and "tiny" has tasks that toy models can learn."""


@dataclass(frozen=True)
class Score:
    """One metric of a cell, computed from all its samples."""

    metric: str
    value: float
    ci_low: float | None
    ci_high: float | None
    """Upper bound of the 95 % confidence interval, which starts at `ci_low`. Both bounds are None
    if the metric has no interval."""
    num_samples: int
    higher_is_better: bool


@dataclass(frozen=True)
class Sample:
    """The score of one prompt or text window. Methods are compared sample by sample."""

    sample: int
    num_prompt_tokens: int
    score: float
    depth: float | None = None
    """Position of the text that contains the answer, in per cent of the context; None if the answer
    has no single position."""
    prediction: str | None = None
    reference: str | None = None
    cluster: str | None = None
    """Group name of statistically dependent samples, such as those of one document. The bootstrap
    resamples whole groups. None: the sample is independent."""
    margin: float | None = None
    """Log-probability of the right answer minus the mean of wrong ones in nats; None if the
    benchmark does not compare them."""


@dataclass(frozen=True)
class CellResult:
    """Scores of a cell, with the samples and losses that they were computed from."""

    scores: tuple[Score, ...]
    samples: tuple[Sample, ...] = ()
    token_nll: tuple[tuple[int, float], ...] = ()
    """Mean NLL in nats of each bin of window positions, as (first position of the bin, mean). Only
    `nll_by_position` fills it."""
    sequences: Sequences = field(default_factory=Sequences)
    """Lengths of the windows or prompts (without answers) that the model read, for the cost model.
    Prefixes that prompts share count once for each prompt."""
    prompts_sha256: str | None = None
    """sha256 over the token ids of all prompts in order. `lce prompt` rebuilds prompts and compares
    it. None for benchmarks without prompts."""
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False)
    """Arrays to store in the cell's folder by name, such as the NLL of every token."""

    @property
    def num_tokens(self) -> int:
        return self.sequences.num_tokens


@dataclass(frozen=True)
class CellRequest:
    """Input of `Benchmark.evaluate`: the model, the cell to evaluate, and execution settings."""

    model: ExtendedModel
    tokenizer: PreTrainedTokenizerBase
    base_model: LanguageModel
    held_out: HeldOutText
    """Tokenised text of the study's corpus that its training rows exclude."""
    task: str
    eval_length: int
    """Context length in tokens, including generated tokens."""
    seed: int
    data_folders: Mapping[str, Path] = field(default_factory=dict)
    batch_tokens: int = 8192
    """Maximum tokens per forward pass in fp32. Half precision ignores it, so that batching never
    changes a score. This execution setting is not part of a cell's id."""
    savings: bool = True
    """True stops generation once the score of an answer cannot change, and computes prefixes that
    prompts share once."""
    losses: LossCache = field(default_factory=LossCache)
    """Token losses of this model from earlier cells, reused for equal windows."""
    ranges: WindowRanges | None = None
    """Splits the windows of a long cell into ranges that several workers can score; None: this
    process scores every window."""
    prompt_folder: Path | None = None
    """Disk cache of prompts for other processes and runs; None caches in memory only."""
    report: Progress = no_progress
    """Progress callback, called with (requests done, total requests)."""


@dataclass(frozen=True)
class Form:
    """One profile ("clean", say) of a benchmark: the settings and code that profiles differ in."""

    summary: str
    """One-line description of the profile for the documentation's list of benchmarks."""

    def check(self, benchmark: Any) -> None:
        """Raise SpecError if the study sets a parameter that has no effect in this profile."""


class Benchmark(Plugin):
    """Base class of benchmarks. Its fields are the parameters that a study can set."""

    unit: ClassVar[str]
    """Unit of the scores: "perplexity", "nats" or "accuracy" (0..1)."""
    seeded: ClassVar[bool]
    """True if the study's seed decides which samples are drawn."""
    default_metric: ClassVar[str]
    """Metric for tables and comparisons that show one metric per benchmark."""
    forms: ClassVar[Mapping[Profile, Form]]
    """Settings of each profile that the benchmark offers."""
    fills_length: ClassVar[bool] = False
    """True: every prompt with its answer is as long as the cell's length. False: the cell's length
    is a maximum, and sequences may be shorter."""
    scores_text: ClassVar[bool] = False
    """True if cells score running text, so that cells of one model can reuse each other's losses.
    """
    data_on_demand: ClassVar[tuple[DataSet, ...]] = ()
    """Data sets that are read only if a parameter selects them."""
    profile: Profile = "clean"
    """Variant of the benchmark to run; recorded in every row of the catalog."""

    @model_validator(mode="after")
    def _require_offered_profile(self) -> Self:
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
        """The settings of the chosen profile."""
        return self.forms[self.profile]

    def tasks(self) -> tuple[str, ...]:
        """List the tasks in order; each (task, length) is one cell."""
        raise NotImplementedError

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """Return the reason if the task cannot run at this length with this model, else None.

        The planner calls it before data and models are loaded, so it must need neither.
        """
        return None

    def reads(self, task: str) -> tuple[DataSet, ...]:
        """List the data sets that a task reads; the user names their folders in `data_folders`."""
        return ()

    def data_names(self, task: str, data_folders: Mapping[str, Path]) -> tuple[str, ...]:
        """List the names of a task's data sets for the cell's record, incomplete ones marked."""
        names = (data_set.recorded_name(data_folders) for data_set in self.reads(task))
        return tuple(dict.fromkeys(names))

    def digest(self, task: str, data_folders: Mapping[str, Path]) -> str | None:
        """Return the sha256 over the files of a task's data sets; None if the task reads none.

        Raises:
          UnavailableError: if a data set is not on this machine; the message says how to get it.
          DataError: if a data set cannot be read.
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
        """Predict `CellResult.sequences` from the sizes of the data files, for cost estimates.

        The default returns None: the planner then uses `num_tokens`.
        """
        return None

    def evaluate(self, request: CellRequest) -> CellResult:
        """Run the model on the cell's prompts or text and return the scores.

        Raises:
          UnavailableError: if the cell cannot be evaluated; the report shows the message.
          NonFiniteError: if a score is NaN or infinite.
        """
        raise NotImplementedError

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Predict the tokens of `CellResult.sequences` for `lce plan`, without any data.

        Args:
          held_out_tokens: tokens of the running text to score, as returned by `text_tokens`.
        """
        raise NotImplementedError

    def text_tokens(self, task: str, held_out_tokens: int) -> int:
        """Predict how many tokens of running text a task reads, without reading the text.

        The default is `held_out_tokens`, the size of one domain of the study's held-out text. For
        tasks on data sets, benchmarks return the published size.
        """
        return held_out_tokens

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        """Return the fraction (0..1) of prompt tokens to compute if prompts share prefixes.

        Args:
          prompt_tokens: mean length of a prompt.
        """
        return 1.0

    def window_grid(self, task: str, eval_length: int) -> tuple[object, int] | None:
        """Return (key, stride in tokens) of the cell's text windows; None if it has no windows.

        Cells with equal keys score the same tokens, so they can reuse each other's losses.
        """
        return None

    def num_independent(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Predict a cell's number of independent samples, for `lce plan --power`.

        The default is the number of prompts, an upper bound if several prompts are about one
        document. 0 means unknown. Arguments as in `num_tokens`.
        """
        return self.answers(task).number

    def answers(self, task: str) -> Answers:
        """Return how many answers a cell generates, and the maximum tokens of an answer."""
        return Answers()


def score(metric: str, estimate: Estimate, *, higher_is_better: bool) -> Score:
    """Build a `Score` from a value with its confidence interval."""
    return Score(
        metric, estimate.value, estimate.low, estimate.high, estimate.num_samples, higher_is_better
    )
