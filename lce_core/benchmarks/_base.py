"""`Benchmark`, the base class of all benchmarks, with its input `CellRequest` and its `CellResult`.

A cell is one task at one context length, for one base model, extension method and seed.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from numpy.typing import NDArray
from pydantic import model_validator

from lce_core.benchmarks._data import DataSet
from lce_core.data.sequences import Answers, Sequences
from lce_core.errors import SpecError
from lce_core.evaluation.windows import LossCache
from lce_core.kinds import Kind
from lce_core.models import LanguageModel
from lce_core.progress import Progress, no_progress
from lce_core.registry import Plugin
from lce_core.statistics.estimates import Estimate

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from lce_core.data.held_out import HeldOutText
    from lce_core.evaluation.long_cell import LongCell
    from lce_core.extension.extended_model import ExtendedModel

ProfileName = Literal["faithful", "clean", "fast", "tiny"]
"""Variant of a benchmark. "faithful" reproduces the papers' scripts, "clean" avoids their known
flaws, "fast" is "clean" with fewer samples, and "tiny" has tasks that toy models can learn."""


class Profile:
    """One profile of a benchmark: a one-line description, and values that only this profile has.

    `defaults` are parameters that a study leaves at None, and values that are no parameters
    (`Benchmark.setting`).
    """

    def __init__(self, summary: str, **defaults: Any) -> None:
        self.summary, self.defaults = summary, defaults


@dataclass(frozen=True)
class CellData:
    """The cell for which a plan asks how many prompts its data sets give, and of which lengths."""

    base_model: LanguageModel
    task: str
    eval_length: int
    data_folders: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """One metric of a cell, computed from all its samples."""

    metric: str
    value: float
    ci_low: float | None
    ci_high: float | None
    """None, like `ci_low`, if the metric has no 95 % confidence interval."""
    num_samples: int
    higher_is_better: bool


@dataclass(frozen=True)
class Sample:
    """The score of one prompt or text window; comparisons of methods pair samples."""

    sample: int
    num_prompt_tokens: int
    score: float
    depth: float | None = None
    """Position of the answer's text in per cent of the context, if it has a single position."""
    prediction: str | None = None
    reference: str | None = None
    cluster: str | None = None
    """Group of dependent samples, such as all samples of one document, which the bootstrap
    resamples as a whole. None: the sample is independent."""
    margin: float | None = None
    """Log-probability of the right answer minus the mean one of wrong answers, in nats."""
    nll: float | None = None
    """Mean NLL in nats of the text that the prompt asks about, the same for all its questions."""
    nll_beyond: float | None = None
    """The same for the text's tokens at or after a position, such as the trained context."""
    prompt_end: str | None = None
    likeliest: str | None = None
    """Most likely of the labels that could answer the prompt."""
    no_context: float | None = None
    local_context: float | None = None
    """Score of the same prompt with only the answer's neighbourhood as context, as `no_context` is
    without any; None if it was not measured."""


@dataclass(frozen=True)
class CellResult:
    """Scores of a cell, with the samples and losses that they were computed from."""

    scores: tuple[Score, ...]
    samples: tuple[Sample, ...] = ()
    token_nll: tuple[tuple[int, float], ...] = ()
    """Mean NLL in nats of each bin of token positions, as (first position of the bin, mean)."""
    sequences: Sequences = field(default_factory=Sequences)
    """Tokens of all windows or prompts, without answers; a shared prefix counts for each prompt."""
    control_sequences: Sequences = field(default_factory=Sequences)
    """Tokens of all control prompts."""
    checks: Mapping[str, int] = field(default_factory=dict)
    """Counts of invalid prompts (`prompt_checks`)."""
    prompts_sha256: str | None = None
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False)
    """Arrays to store in the cell's folder by name, such as the NLL of every token."""

    @property
    def num_tokens(self) -> int:
        return self.sequences.num_tokens


@dataclass(frozen=True)
class CellRequest:
    """Input of `Benchmark.evaluate`: the model, the cell to evaluate, and execution settings."""

    model: "ExtendedModel"
    tokenizer: "PreTrainedTokenizerBase"
    base_model: LanguageModel
    held_out: "HeldOutText"
    """Tokenised text of the study's corpus that is not used for training."""
    task: str
    eval_length: int
    """Context length in tokens, including generated tokens."""
    seed: int
    data_folders: Mapping[str, Path] = field(default_factory=dict)
    template_tokens: int = 0
    """Tokens of a chat template that `eval_length` leaves out while prompts are built."""
    batch_tokens: int = 8192
    """Maximum tokens of a forward pass in fp32. In half precision each text is processed alone, so
    that batching never changes a score. It is not part of a cell's id."""
    savings: bool = True
    """True stops generation once the score cannot change, and computes a shared prefix once."""
    losses: LossCache = field(default_factory=LossCache)
    """Token losses of this model from earlier cells. Cells that score the same windows reuse
    them."""
    cell: "LongCell | None" = None
    """Keeps the answers of a long cell, and splits its windows into ranges for several workers.
    None: all are computed here, and an interrupted evaluation begins again."""
    prompt_folder: Path | None = None
    """Folder in which processes and later runs share built prompts; None caches them in memory."""
    report: Progress = no_progress
    """Called with (work done, total work) in prompts, contexts or windows."""

    @property
    def cell_length(self) -> int:
        """The cell's length, with a chat template: draws and variants of a prompt depend on it."""
        return self.eval_length + self.template_tokens


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
    profiles: ClassVar[Mapping[ProfileName, Profile]]
    """The profiles that the benchmark offers."""
    fills_length: ClassVar[bool] = False
    """True: prompt and answer together fill the cell's length, and cells with much shorter prompts
    are unavailable. False: the length is a maximum."""
    scores_text: ClassVar[bool] = False
    """True if cells score running text, so that cells of one model can reuse each other's
    losses."""
    data_on_demand: ClassVar[tuple[DataSet, ...]] = ()
    """Data sets that are read only if a parameter selects them."""
    profile: ProfileName = "clean"
    """Variant of the benchmark to run; recorded in every row of the catalog."""

    @model_validator(mode="after")
    def _require_offered_profile(self) -> Self:
        if self.profile not in self.profiles:
            offered = ", ".join(self.profiles)
            raise SpecError(
                "profile",
                repr(self.profile),
                f"a profile that {self.plugin_name} offers: {offered}",
                "choose one of these",
            )
        return self

    def setting(self, name: str) -> Any:
        """Return a parameter's value, or the profile's default if it is None or no parameter."""
        given = getattr(self, name, None)
        return self.profiles[self.profile].defaults.get(name) if given is None else given

    def refuse(self, names: Iterable[str]) -> None:
        """Raise SpecError if there are `names`, the parameters without effect in this profile."""
        if refused := ", ".join(names):
            raise SpecError(
                "profile",
                f"{self.profile} with {refused}",
                f"only parameters that have an effect in profile {self.profile}",
                f"omit {refused}, or choose another profile",
            )

    def tasks(self) -> tuple[str, ...]:
        """Return the names of the tasks, in the order in which tables list them."""
        raise NotImplementedError

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """Return why the task cannot run at this length with this model; None if it can.

        The planner calls it before it loads any data or weights, so an override must not need them.
        """
        return None

    def held_out_domain(self, task: str) -> str | None:
        """Return the domain of the study's held-out text that is the task; None if it is none."""
        return None

    def excerpt_tokens(self, base_model: LanguageModel, task: str, eval_length: int) -> int:
        """Return how many successive held-out tokens a prompt or window needs; 0 if none.

        A smaller number is allowed. The planner refuses excerpts longer than
        `evaluation.held_out_tokens`. The default is `eval_length` if the task is a domain of the
        held-out text, else 0.
        """
        return eval_length if self.held_out_domain(task) else 0

    def reads(self, task: str) -> tuple[DataSet, ...]:
        """Return the data sets that a task reads from the user's `data_folders`."""
        return ()

    @classmethod
    def all_data_sets(cls) -> dict[str, DataSet]:
        profiles = [cls.model_validate({"profile": profile}) for profile in cls.profiles]
        read = [data for one in profiles for task in one.tasks() for data in one.reads(task)]
        return {data.name: data for data in (*read, *cls.data_on_demand)}

    def data_names(self, task: str, data_folders: Mapping[str, Path]) -> tuple[str, ...]:
        """Return a task's data sets for the catalog; incomplete ones end with " (subset)"."""
        names = (data_set.recorded_name(data_folders) for data_set in self.reads(task))
        return tuple(dict.fromkeys(names))

    def digest(self, task: str, data_folders: Mapping[str, Path]) -> str | None:
        """Return the sha256 over the files of a task's data sets; None if the task reads none.

        Raises UnavailableError if a data set is missing here, DataError if it cannot be read.
        """
        digests = [data_set.digest(data_folders) for data_set in self.reads(task)]
        if len(digests) < 2:
            return digests[0] if digests else None
        return hashlib.sha256(" ".join(digests).encode()).hexdigest()

    def data_sequences(self, cell: CellData) -> Sequences | None:
        """Predict `CellResult.sequences` from file sizes; if None, costs use `num_tokens`."""
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

        `held_out_tokens` are those of the running text to score (`text_tokens`).
        """
        raise NotImplementedError

    def text_tokens(self, task: str, held_out_tokens: int) -> int:
        """Predict how many tokens of running text a task reads, without reading the text.

        `held_out_tokens`, the default, is the size of a domain. Override it for data sets.
        """
        return held_out_tokens

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        """Predict which fraction (0..1) of a cell's prompt tokens passes through the model.

        It is below 1 if prompts of mean length `prompt_tokens` share prefixes.
        """
        return 1.0

    def window_grid(self, task: str, eval_length: int) -> tuple[object, int] | None:
        """Return (key of the text, stride in tokens) of the cell's windows; None without windows.

        Cells with equal keys cut their windows from the same tokens, so they can share losses.
        """
        return None

    @property
    def lacks_begin(self) -> bool:
        """True if texts start in the middle, without the beginning-of-text token."""
        return False

    def num_independent(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Predict a cell's number of independent samples for `lce plan --power`; 0 if unknown.

        The default is the number of prompts, an upper bound if several are about one document.
        """
        return self.answers(task).number

    def num_parts(self, task: str, *, half: bool) -> int:
        """Return how many parts a long cell stores at least one by one; `half` if not in fp32."""
        return 1

    def data_samples(self, cell: CellData) -> int | None:
        """Return how many independent samples a task's data set has, for `lce plan --power`.

        The files in the cell's folders count, or the published data set if they are missing. None,
        the default, means that one seed can draw any number of samples.
        """
        return None

    def control_sequences(self, task: str) -> Sequences:
        """Predict number and length of the control prompts; by default none."""
        return Sequences()

    def answers(self, task: str) -> Answers:
        """Return number and maximum tokens of a cell's generated answers; by default none."""
        return Answers()


def score(metric: str, estimate: Estimate, *, higher_is_better: bool) -> Score:
    return Score(
        metric, estimate.value, estimate.low, estimate.high, estimate.num_samples, higher_is_better
    )
