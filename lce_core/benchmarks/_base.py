"""`Benchmark`, the base class of all benchmarks, with its input `CellRequest` and its `CellResult`.

A cell is one task of a benchmark at one context length, for one base model, extension method and
seed.
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
from lce_core.kinds import Kind
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
    """The score of one prompt or text window.

    Comparisons of two extension methods pair their scores sample by sample.
    """

    sample: int
    num_prompt_tokens: int
    score: float
    depth: float | None = None
    """Position of the text that contains the answer, in per cent of the context; None if the answer
    has no single position."""
    prediction: str | None = None
    reference: str | None = None
    cluster: str | None = None
    """Name of the group of dependent samples to which this sample belongs, such as all samples of
    one document. The bootstrap resamples whole groups. None: the sample is independent."""
    margin: float | None = None
    """Log-probability of the right answer minus the mean log-probability of wrong answers, in nats;
    None if the benchmark does not compute it."""
    nll: float | None = None
    """Mean NLL in nats of the tokens of the text that the prompt asks about; None if the benchmark
    does not compute it. Questions about the same text have equal values."""
    nll_beyond: float | None = None
    """The same for the text's tokens at or after a position, such as the trained context."""
    prompt_end: str | None = None
    """Last characters of the prompt; None without a prompt. `PromptBenchmark.with_ends` sets it."""


@dataclass(frozen=True)
class CellResult:
    """Scores of a cell, with the samples and losses that they were computed from."""

    scores: tuple[Score, ...]
    samples: tuple[Sample, ...] = ()
    token_nll: tuple[tuple[int, float], ...] = ()
    """Mean NLL in nats of each bin of token positions, as (first position of the bin, mean). Only
    `nll_by_position` and `multi_key` fill it."""
    sequences: Sequences = field(default_factory=Sequences)
    """Token counts of all windows or prompts (without answers), for the cost model. A prefix that
    several prompts share counts once for each of them."""
    prompts_sha256: str | None = None
    """sha256 over the token ids of all prompts in order. `lce prompt` rebuilds the prompts and
    compares their sha256 with this one. None for benchmarks without prompts."""
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
    """Tokenised text of the study's corpus that is not used for training."""
    task: str
    eval_length: int
    """Context length in tokens, including generated tokens."""
    seed: int
    data_folders: Mapping[str, Path] = field(default_factory=dict)
    batch_tokens: int = 8192
    """Maximum tokens per forward pass in fp32. Half precision ignores this limit and processes each
    text alone, so that batching never changes a score. It is not part of a cell's id."""
    savings: bool = True
    """True saves work: generation of an answer stops once its score cannot change, and a prefix
    that several prompts share passes through the model once."""
    losses: LossCache = field(default_factory=LossCache)
    """Token losses of this model from earlier cells. Cells that score the same windows reuse them.
    """
    ranges: WindowRanges | None = None
    """Splits the windows of a long cell into ranges that several workers can score; None: this
    process scores every window."""
    prompt_folder: Path | None = None
    """Folder in which processes and later runs share built prompts; None: prompts are cached only
    in the memory of this process."""
    report: Progress = no_progress
    """Progress callback, called with (work done, total work) in prompts, contexts or windows."""


@dataclass(frozen=True)
class Form:
    """One profile of a benchmark, such as "clean": the settings and code that only it uses."""

    summary: str
    """One-line description of the profile for the documentation's list of benchmarks."""

    def check(self, benchmark: Any) -> None:
        """Raise SpecError if the study sets a parameter that has no effect in this profile."""


class Benchmark(Plugin):
    """Base class of all benchmarks. A subclass's fields are the parameters that a study can set."""

    kind: ClassVar[Kind] = "retrieval"
    """Ability that the benchmark measures, stored in the catalog's column `kind`."""
    unit: ClassVar[str]
    """Unit of the scores: "perplexity", "nats" or "accuracy" (0..1)."""
    seeded: ClassVar[bool]
    """True if the study's seed decides which samples are drawn."""
    default_metric: ClassVar[str]
    """Metric for tables and comparisons that show one metric per benchmark."""
    sample_metrics: ClassVar[tuple[str, ...]] = ()
    """Other metrics, in nats, that expectations can name: columns of `Sample` with these names."""
    forms: ClassVar[Mapping[Profile, Form]]
    """The profiles that the benchmark offers, with their settings."""
    fills_length: ClassVar[bool] = False
    """True: prompt and answer together fill the cell's length, and a cell with much shorter prompts
    is unavailable. False: the cell's length is a maximum, and prompts may be shorter."""
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
        """Entry of `forms` for the chosen `profile`."""
        return self.forms[self.profile]

    def tasks(self) -> tuple[str, ...]:
        """Return the names of the tasks, in the order in which tables list them."""
        raise NotImplementedError

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """Return why the task cannot run at this length with this model; None if it can.

        The planner calls this method before it loads any data or model weights, so an override must
        not need them.
        """
        return None

    def held_out_domain(self, task: str) -> str | None:
        """Return the domain of the study's held-out text that is the task; None if it is none."""
        return None

    def excerpt_tokens(self, base_model: LanguageModel, task: str, eval_length: int) -> int:
        """Return how many successive held-out tokens a prompt or window needs; 0 if it needs none.

        A smaller number is allowed. The planner refuses a cell whose excerpts are longer than
        `evaluation.held_out_tokens`. The default returns `eval_length` if the task is a domain of
        the held-out text, else 0.
        """
        return eval_length if self.held_out_domain(task) else 0

    def reads(self, task: str) -> tuple[DataSet, ...]:
        """Return the data sets that a task reads from the user's `data_folders`."""
        return ()

    @classmethod
    def all_data_sets(cls) -> dict[str, DataSet]:
        """Return the data sets that any profile or parameter of this benchmark reads, by name."""
        profiles = [cls.model_validate({"profile": profile}) for profile in cls.forms]
        read = [data for one in profiles for task in one.tasks() for data in one.reads(task)]
        return {data.name: data for data in (*read, *cls.data_on_demand)}

    def data_names(self, task: str, data_folders: Mapping[str, Path]) -> tuple[str, ...]:
        """Return the names of a task's data sets for the catalog, such as "longbench".

        The name of an incomplete data set ends with " (subset)".
        """
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

        The default returns None: the planner then estimates the cost from `num_tokens`.
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
        """Predict the total tokens of a cell's prompts or windows for `lce plan`, without any data.

        Args:
          held_out_tokens: tokens of the running text to score, as returned by `text_tokens`.
        """
        raise NotImplementedError

    def text_tokens(self, task: str, held_out_tokens: int) -> int:
        """Predict how many tokens of running text a task reads, without reading the text.

        The default returns `held_out_tokens`, the size of one domain of the study's held-out text.
        Benchmarks override it to return the published size for tasks that read a data set.
        """
        return held_out_tokens

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        """Predict which fraction (0..1) of a cell's prompt tokens passes through the model.

        The fraction is below 1 if prompts share prefixes, because a shared prefix passes through
        the model once. The default 1.0 means that no prompts share a prefix.

        Args:
          prompt_tokens: mean length of a prompt; the cell's length if the benchmark generates no
            answers.
        """
        return 1.0

    def window_grid(self, task: str, eval_length: int) -> tuple[object, int] | None:
        """Return (key of the text, stride in tokens) of the cell's windows; None without windows.

        Cells with equal keys cut their windows from the same tokens. They can reuse each other's
        losses.
        """
        return None

    @property
    def lacks_begin(self) -> bool:
        """True if texts start in the middle, without the beginning-of-text token."""
        return False

    def num_independent(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Predict a cell's number of independent samples, for `lce plan --power`.

        The default is the number of prompts, which is an upper bound if several prompts are about
        one document. 0 means that the number is unknown. See `num_tokens` for the arguments.
        """
        return self.answers(task).number

    def data_samples(
        self,
        base_model: LanguageModel,
        task: str,
        eval_length: int,
        data_folders: Mapping[str, Path],
    ) -> int | None:
        """Return how many independent samples a task's data set has, for `lce plan --power`.

        The files in `data_folders` count, or the published data set if they are missing. The
        default None means that one seed can draw any number of samples.

        Raises:
          DataError: if a data set cannot be read.
        """
        return None

    def answers(self, task: str) -> Answers:
        """Return the number of answers that a cell generates and the maximum tokens of an answer.

        The default is no answers.
        """
        return Answers()


def score(metric: str, estimate: Estimate, *, higher_is_better: bool) -> Score:
    """Build a `Score` from a value with its confidence interval."""
    return Score(
        metric, estimate.value, estimate.low, estimate.high, estimate.num_samples, higher_is_better
    )
