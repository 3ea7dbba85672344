"""The step kinds: token shards, packed rows, held-out text, base models, fine-tuning, cells.

To add a kind, define a class here and a function in `lce_core.runners`. Code that groups, prices,
schedules or displays steps uses the class and needs no change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from lce_core.benchmarks import BENCHMARKS, Benchmark
from lce_core.corpora import CORPORA, Corpus
from lce_core.data.sequences import Answers, Sequences
from lce_core.errors import SpecError
from lce_core.methods import METHODS, Method
from lce_core.models import MODELS, LanguageModel
from lce_core.recipe import Inference, Positions, Section, Training, Upsampling
from lce_core.registry import Plugin, Registry
from lce_core.statistics.estimates import INTERVALS
from lce_core.store.steps import Step
from lce_core.study.step_cost import (
    StepCost,
    decoding_cost,
    evaluation_cost,
    finetune_cost,
    pretraining_cost,
)
from lce_core.study.step_spec import KINDS, StepSpec
from lce_core.study.variants import variant_name


def _plugin(registry: Registry[Any], value: object) -> object:
    return registry.from_identity(value) if isinstance(value, Mapping) else value


def _identity(plugin: Plugin) -> dict[str, Any]:
    return plugin.identity()


def _installed_intervals(value: dict[str, Any]) -> dict[str, Any]:
    if value != INTERVALS:
        raise SpecError(
            "intervals",
            value,
            f"{INTERVALS}, the intervals of this installation",
            "plan the study again with this installation",
        )
    return value


_AS_IDENTITY = PlainSerializer(_identity)
SomeCorpus = Annotated[Corpus, BeforeValidator(partial(_plugin, CORPORA)), _AS_IDENTITY]
SomeModel = Annotated[LanguageModel, BeforeValidator(partial(_plugin, MODELS)), _AS_IDENTITY]
SomeMethod = Annotated[Method, BeforeValidator(partial(_plugin, METHODS)), _AS_IDENTITY]
SomeBenchmark = Annotated[Benchmark, BeforeValidator(partial(_plugin, BENCHMARKS)), _AS_IDENTITY]


class Tokenizer(Section):
    """Identity of a base model's tokenizer, so that models with the same one share text steps."""

    name: str
    """Name of the base model's plug-in."""
    version: int
    weights: str | None = None
    """Digest of the local model folder; None for the hub."""
    parameters: Mapping[str, Any] = Field(default_factory=dict)
    """Parameters of the base model that affect its tokenizer."""


class _TextSpec(StepSpec):
    corpus: SomeCorpus
    digest: str | None
    """Digest of the corpus's content."""
    tokenizer: Tokenizer


class TokensSpec(_TextSpec):
    """Token shards of a streamed corpus, from which rows and held-out text are cut."""

    kind: ClassVar[str] = "tokens"
    version: ClassVar[int] = 1
    order: ClassVar[int] = -1
    submitted_as: ClassVar[str] = "sample"


class RowsSpec(_TextSpec):
    """Packed training rows."""

    kind: ClassVar[str] = "rows"
    version: ClassVar[int] = 2
    order: ClassVar[int] = 0
    submitted_as: ClassVar[str] = "sample"

    row_length: int
    """Row length in tokens."""
    num_rows: int
    upsampling: Upsampling
    seed: int


class HeldOutSpec(_TextSpec):
    """Tokenised held-out text."""

    kind: ClassVar[str] = "held_out"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 1
    submitted_as: ClassVar[str] = "sample"

    tokens_per_domain: int


class TrainingSpec(StepSpec):
    """A training run on packed rows, its parent `rows`."""

    submitted_as: ClassVar[str] = "train"
    place: ClassVar[tuple[str, ...]] = ("base_model", "method", "seed")
    curve: ClassVar[str]
    """Metric name of the loss per optimizer step, for charts."""

    base_model: SomeModel
    training: Training
    num_steps: int
    row_length: int
    """Row length in tokens."""
    seed: int

    @staticmethod
    def curve_of(kind: str) -> str:
        """Return the `curve` of a training kind."""
        spec = kind_named(kind)
        assert issubclass(spec, TrainingSpec), f"steps of kind {kind} train nothing"
        return spec.curve

    @property
    def num_tokens(self) -> int:
        """Number of tokens in all optimizer steps."""
        return self.num_steps * self.training.tokens_per_step


class BaseSpec(TrainingSpec):
    """A base model trained by the study from random weights."""

    kind: ClassVar[str] = "base"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 2
    curve: ClassVar[str] = "pretrain/loss"

    def cost(self, step: Step) -> StepCost:  # noqa: ARG002 - all of it is in the spec
        """Predict the cost of all forward and backward passes."""
        return pretraining_cost(self.base_model, self.num_tokens, self.row_length)


class FinetuneSpec(TrainingSpec):
    """Fine-tuning with a method, starting from the parent `base` or from the hub's weights."""

    kind: ClassVar[str] = "finetune"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 3
    curve: ClassVar[str] = "train/loss"

    weights: str | None = None
    """Digest of the local model folder; None for the hub."""
    method: SomeMethod
    target_context: int
    """Target context length in tokens."""
    train_positions: Positions = "exact"

    def cost(self, step: Step) -> StepCost:  # noqa: ARG002 - all of it is in the spec
        """Predict the cost of all forward and backward passes with the method's attention."""
        target, length = self.target_context, self.row_length
        return finetune_cost(self.base_model, self.method, target, self.num_tokens, length)


class CellSpec(StepSpec):
    """One benchmark task at one length, evaluated with the parent `checkpoint` or other weights.

    Without a parent `checkpoint` the weights are published ones, a local folder's or the hub's.
    """

    kind: ClassVar[str] = "cell"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 4
    submitted_as: ClassVar[str] = "evaluate"
    place: ClassVar[tuple[str, ...]] = (
        "base_model", "method", "frozen", "seed", "benchmark", "task", "eval_length",
    )  # fmt: skip

    base_model: SomeModel
    weights: str | None = None
    """Digest of the local model folder; None for the hub."""
    method: SomeMethod
    target_context: int
    """Target context length in tokens."""
    benchmark: SomeBenchmark
    task: str
    eval_length: int
    """Evaluated context length in tokens."""
    evaluation: Inference
    intervals: Annotated[dict[str, Any], AfterValidator(_installed_intervals)]
    """Definition of the intervals around scores: `lce_core.statistics.estimates.INTERVALS`."""
    seed: int | None = None
    """Seed of a benchmark that draws its samples; None for other benchmarks."""
    data: str | None = None
    """Digest of the benchmark's data set; None if it reads none."""
    published: str | None = None
    """Digest of the folder with published weights; None if the variant names none."""

    def cost(self, step: Step) -> StepCost:
        """Predict the cost from the data set's known sequences or the benchmark's estimate."""
        answers = self.benchmark.answers(self.task)
        if "num_tokens" in step.axes:
            return self._with_answers(step.axes["num_tokens"], step.axes["mean_length"], answers)
        held_out = step.lineage[HeldOutSpec.kind]["tokens_per_domain"]
        text = self.benchmark.text_tokens(self.task, held_out)
        tokens = self.benchmark.num_tokens(self.task, self.eval_length, text)
        length = float(self.eval_length)
        if answers.number:  # one sequence per answer, so the mean length is known
            length = min(length, tokens / answers.number)
        return self._with_answers(tokens, length, answers)

    def cost_of(self, sequences: Sequences) -> StepCost:
        """Return the cost of the sequences that a finished cell has processed, without decoding."""
        return self._cost(sequences.num_tokens, sequences.mean_length)

    def _with_answers(self, tokens: int, length: float, answers: Answers) -> StepCost:
        decoding = decoding_cost(
            self.base_model,
            self.method,
            self.target_context,
            answers,
            max(1.0, length),
            self.evaluation.precision,
        )
        return replace(self._cost(tokens, length), decoding=decoding)

    def _cost(self, tokens: int, length: float) -> StepCost:
        target = self.target_context
        return evaluation_cost(self.base_model, self.method, target, tokens, length)

    @classmethod
    def unit(cls, step: Step) -> tuple[object, ...]:
        """Return the key that cells of one unit share.

        Cells of one model at one length form a unit; text-scoring cells of one model at all lengths
        form another.
        """
        axes = ("base_model", "method", "frozen", "seed")
        shared = "text" if _scores_text(step) else step.axes["eval_length"]
        return (*(step.axes[axis] for axis in axes), shared)

    @classmethod
    def unit_name(cls, step: Step) -> str:
        """Name the model and the length, as in "evaluate m-yarn-s0 at 4096"."""
        axes = step.axes
        variant = variant_name(axes["method"], axes["frozen"])
        what = "on text" if _scores_text(step) else f"at {axes['eval_length']}"
        return f"evaluate {axes['base_model']}-{variant}-s{axes['seed']} {what}"

    @classmethod
    def is_divisible(cls, step: Step) -> bool:
        """Return False for text-scoring cells: another worker would recompute shared windows."""
        return not _scores_text(step)

    @classmethod
    def rank(cls, step: Step) -> tuple[str, int]:
        """Order text-scoring cells by text, then longest first; other cells longest first.

        The losses of shorter windows are read from the losses of longer ones. Texts are processed
        one after another because a worker's memory may hold the losses of only one text.
        """
        text = step.axes["task"] if _scores_text(step) else ""
        return text, -int(step.axes["eval_length"])


def kind_named(kind: str) -> type[StepSpec]:
    """Return the class of a kind.

    Raises:
      KeyError: if there is no such kind.
    """
    return KINDS[kind]


def spec_of(step: Step) -> StepSpec:
    """Parse the step's spec and load its plug-ins.

    Raises:
      SpecError: if another version of the kind or of a plug-in wrote the spec.
    """
    return KINDS[step.kind].parse(step.spec)


def step_cost(step: Step) -> StepCost:
    """Predict the cost of one step."""
    return spec_of(step).cost(step)


def _scores_text(step: Step) -> bool:
    return BENCHMARKS.load(step.axes["benchmark"]).scores_text
