"""Request, result and base class of all benchmarks."""

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
""""faithful" follows the papers, "clean" avoids known flaws of their scripts, "fast" estimates what
"clean" measures with fewer tokens, "tiny" suits toy models."""


@dataclass(frozen=True)
class Score:
    """One score of a cell, in the benchmark's unit."""

    metric: str
    value: float
    ci_low: float | None
    ci_high: float | None
    """`ci_low` to `ci_high` is a 95 % confidence interval over samples, documents or windows; both
    are None if there is none."""
    num_samples: int
    higher_is_better: bool


@dataclass(frozen=True)
class Sample:
    """The score of one prompt or window, stored so that methods can be compared pairwise."""

    sample: int
    num_prompt_tokens: int
    score: float
    depth: float | None = None
    """Position of the text that holds the answer, from 0 (start) to 100 (end of the context); None
    if it has no single position."""
    prediction: str | None = None
    reference: str | None = None
    cluster: str | None = None
    """Name shared by dependent samples, such as those of one document; intervals resample them
    together. None means independent of all others."""
    margin: float | None = None
    """Log-probability of the right answer minus the mean of wrong ones in nats; None if the
    benchmark does not compare them."""


@dataclass(frozen=True)
class CellResult:
    """Everything that a cell produced."""

    scores: tuple[Score, ...]
    samples: tuple[Sample, ...] = ()
    token_nll: tuple[tuple[int, float], ...] = ()
    """(first position, mean NLL in nats) of each bin of positions; empty if the benchmark does not
    score by position."""
    sequences: Sequences = field(default_factory=Sequences)
    """Sequences that the cell passes through the model, for the cost model: windows, or prompts
    without their answers. Tokens shared with other prompts or cells count every time."""
    prompts_sha256: str | None = None
    """sha256 over the token ids of all prompts in order, which proves that rebuilt prompts are
    identical; None for benchmarks without prompts."""
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False)
    """Raw numbers stored in the cell's folder by name, such as the NLL of every token."""

    @property
    def num_tokens(self) -> int:
        """Total tokens of all sequences."""
        return self.sequences.num_tokens


@dataclass(frozen=True)
class CellRequest:
    """Everything a benchmark receives to evaluate one cell."""

    model: ExtendedModel
    tokenizer: PreTrainedTokenizerBase
    base_model: LanguageModel
    held_out: HeldOutText
    """Held-out text of the study's corpus, tokenised, by domain."""
    task: str
    eval_length: int
    """Context length in tokens, including generated tokens."""
    seed: int
    data_folders: Mapping[str, Path] = field(default_factory=dict)
    batch_tokens: int = 8192
    """Maximum tokens per forward pass. This is an execution setting, not part of a cell's identity;
    half precision ignores it."""
    savings: bool = True
    """Save time: stop answers whose score is final, and compute common prefixes of prompts once."""
    losses: LossCache = field(default_factory=LossCache)
    """Token losses that this model computed for earlier cells, reused for equal windows."""
    ranges: WindowRanges | None = None
    """Computes and saves the losses of a long cell in ranges of windows, which other workers can
    share; None scores the whole cell here."""
    prompt_folder: Path | None = None
    """Folder that caches prompts for other processes and runs; None keeps them in this process
    only."""
    report: Progress = no_progress
    """Called with (requests done, total requests)."""


@dataclass(frozen=True)
class Form:
    """Settings and code of one profile of a benchmark; subclasses add what profiles differ in."""

    summary: str
    """One-line description for the generated documents."""

    def check(self, benchmark: Any) -> None:
        """Raise SpecError (a ValueError) if a parameter has no effect in this profile."""


class Benchmark(Plugin):
    """Base class of benchmarks; an instance holds the parameters that a study sets."""

    unit: ClassVar[str]
    """Unit of the scores: "perplexity", "nats" or "accuracy" (0..1)."""
    seeded: ClassVar[bool]
    """True if the study's seed decides which samples are drawn."""
    default_metric: ClassVar[str]
    """Metric that tables and comparisons show where there is room for only one."""
    forms: ClassVar[Mapping[Profile, Form]]
    """Form of each profile that the benchmark offers."""
    fills_length: ClassVar[bool] = False
    """Meaning of a cell's length. True: prompts with their answers take that many tokens. False:
    the length is a maximum, and data or task determine the actual length of a sequence."""
    scores_text: ClassVar[bool] = False
    """True if a cell reads losses of running text, which other cells of the same model can reuse.
    """
    data_on_demand: ClassVar[tuple[DataSet, ...]] = ()
    """Data sets that are read only if a parameter selects them."""
    profile: Profile = "clean"
    """Profile to run; recorded in every row of the catalog."""

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
        """The form of the chosen profile."""
        return self.forms[self.profile]

    def tasks(self) -> tuple[str, ...]:
        """List the tasks in order; each (task, length) is one cell."""
        raise NotImplementedError

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """Return why this task cannot run at this length with this model, None if it can.

        Planning calls this, so it must not read data or load the model.
        """
        return None

    def reads(self, task: str) -> tuple[DataSet, ...]:
        """List the data sets that a task reads; the user names their folders in `data_folders`."""
        return ()

    def data_names(self, task: str, data_folders: Mapping[str, Path]) -> tuple[str, ...]:
        """List a task's data sets for the cell's record, marked "(subset)" if the user says so."""
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
        """Predict `CellResult.sequences` from the data itself, for more exact costs.

        None (the default) means that the prediction of `num_tokens` is as good.
        """
        return None

    def evaluate(self, request: CellRequest) -> CellResult:
        """Run the model on the cell's prompts or text and return the scores.

        Raises:
          UnavailableError: if the cell turns out to be impossible; the message is the reason.
          NonFiniteError: if a score is NaN or infinite.
        """
        raise NotImplementedError

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Predict the tokens of `CellResult.sequences` for `lce plan`, without any data.

        Args:
          task: one of `tasks()`.
          eval_length: context length in tokens.
          held_out_tokens: tokens of running text that the task reads, as returned by `text_tokens`.
        """
        raise NotImplementedError

    def text_tokens(self, task: str, held_out_tokens: int) -> int:
        """Predict how many tokens of running text a task reads, without reading the text.

        The default is `held_out_tokens`, the size of a domain; for data sets, benchmarks return the
        published size.
        """
        return held_out_tokens

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        """Return the fraction of prompt tokens to compute if common prefixes are computed once.

        Args:
          task: one of `tasks()`.
          prompt_tokens: mean length of a prompt.
        """
        return 1.0

    def window_grid(self, task: str, eval_length: int) -> tuple[object, int] | None:
        """Return (key of the token stream, stride in tokens); None if the cell cuts no windows.

        Cells with equal keys read the same stream from its start, so losses can be shared.
        """
        return None

    def num_independent(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Predict a cell's number of independent samples, for `lce plan --power`.

        The default is the number of prompts. It is an upper bound if the data determine which
        prompts share a document. 0 means unknown.

        Args:
          task: one of `tasks()`.
          eval_length: context length in tokens.
          held_out_tokens: tokens of running text that the task reads, as returned by `text_tokens`.
        """
        return self.answers(task).number

    def answers(self, task: str) -> Answers:
        """Return how many answers a cell generates and their maximum tokens; none by default."""
        return Answers()


def score(metric: str, estimate: Estimate, *, higher_is_better: bool) -> Score:
    """Build a `Score` from an estimate (value, interval, number of samples)."""
    return Score(
        metric, estimate.value, estimate.low, estimate.high, estimate.num_samples, higher_is_better
    )
