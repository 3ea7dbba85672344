"""The kinds of step: token shards, packed rows, held-out text, base models, fine-tuning, cells.

A new kind is a class here and a function in `lce_core.runners`; whoever groups, prices, schedules
or shows steps asks the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, PlainSerializer

from lce_core.benchmarks import BENCHMARKS, Benchmark
from lce_core.corpora import CORPORA, Corpus
from lce_core.data.sequences import Answers, Sequences
from lce_core.methods import METHODS, Method
from lce_core.models import MODELS, LanguageModel
from lce_core.recipe import Inference, Positions, Section, Training, Upsampling
from lce_core.registry import Plugin, Registry
from lce_core.store.steps import Step
from lce_core.study.step_cost import (
    StepCost,
    decoding_cost,
    evaluation_cost,
    finetune_cost,
    pretraining_cost,
)
from lce_core.study.step_spec import KINDS, StepSpec


def _plugin(registry: Registry[Any], value: object) -> object:
    return registry.from_identity(value) if isinstance(value, Mapping) else value


def _identity(plugin: Plugin) -> dict[str, Any]:
    return plugin.identity()


_AS_IDENTITY = PlainSerializer(_identity)
SomeCorpus = Annotated[Corpus, BeforeValidator(partial(_plugin, CORPORA)), _AS_IDENTITY]
SomeModel = Annotated[LanguageModel, BeforeValidator(partial(_plugin, MODELS)), _AS_IDENTITY]
SomeMethod = Annotated[Method, BeforeValidator(partial(_plugin, METHODS)), _AS_IDENTITY]
SomeBenchmark = Annotated[Benchmark, BeforeValidator(partial(_plugin, BENCHMARKS)), _AS_IDENTITY]


class Tokenizer(Section):
    """The tokenizer of a base model, whose other parameters do not matter for text."""

    name: str
    """The base model's plug-in."""
    version: int
    weights: str | None = None
    """Digest of the folder that takes the hub's place."""
    parameters: Mapping[str, Any] = Field(default_factory=dict)
    """Those of the base model that its tokenizer depends on."""


class _TextSpec(StepSpec):
    corpus: SomeCorpus
    digest: str | None
    """The corpus's content."""
    tokenizer: Tokenizer


class TokensSpec(_TextSpec):
    """Token shards of a streamed corpus, which rows and held-out text are cut from."""

    kind: ClassVar[str] = "tokens"
    version: ClassVar[int] = 1
    order: ClassVar[int] = -1
    submitted_as: ClassVar[str] = "sample"


class RowsSpec(_TextSpec):
    """Packed training rows."""

    kind: ClassVar[str] = "rows"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 0
    submitted_as: ClassVar[str] = "sample"

    row_length: int
    """In tokens."""
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
    """A training run on the rows that are its parent."""

    submitted_as: ClassVar[str] = "train"
    place: ClassVar[tuple[str, ...]] = ("base_model", "method", "seed")
    curve: ClassVar[str]
    """Name of its loss by optimizer step, for charts."""

    base_model: SomeModel
    training: Training
    num_steps: int
    row_length: int
    """In tokens."""
    seed: int

    @staticmethod
    def curve_of(kind: str) -> str:
        """The `curve` of a kind of training run."""
        spec = kind_named(kind)
        assert issubclass(spec, TrainingSpec), f"steps of kind {kind} train nothing"
        return spec.curve

    @property
    def num_tokens(self) -> int:
        """Tokens of all optimizer steps."""
        return self.num_steps * self.training.tokens_per_step


class BaseSpec(TrainingSpec):
    """A base model trained by the study from random weights."""

    kind: ClassVar[str] = "base"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 2
    curve: ClassVar[str] = "pretrain/loss"

    def cost(self, step: Step) -> StepCost:  # noqa: ARG002 - all of it is in the spec
        """Forward and backward passes."""
        return pretraining_cost(self.base_model, self.num_tokens, self.row_length)


class FinetuneSpec(TrainingSpec):
    """A base model, its parent `base` or the hub's, extended by training with a method."""

    kind: ClassVar[str] = "finetune"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 3
    curve: ClassVar[str] = "train/loss"

    weights: str | None = None
    """Digest of the folder that takes the hub's place."""
    method: SomeMethod
    target_context: int
    """In tokens."""
    train_positions: Positions = "exact"

    def cost(self, step: Step) -> StepCost:  # noqa: ARG002 - all of it is in the spec
        """Forward and backward passes with the method's attention."""
        target, length = self.target_context, self.row_length
        return finetune_cost(self.base_model, self.method, target, self.num_tokens, length)


class CellSpec(StepSpec):
    """One benchmark task at one length, with the weights of its parent `checkpoint` or the hub."""

    kind: ClassVar[str] = "cell"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 4
    submitted_as: ClassVar[str] = "evaluate"
    place: ClassVar[tuple[str, ...]] = (
        "base_model", "method", "frozen", "seed", "benchmark", "task", "eval_length",
    )  # fmt: skip

    base_model: SomeModel
    weights: str | None = None
    """Digest of the folder that takes the hub's place."""
    method: SomeMethod
    target_context: int
    """In tokens."""
    benchmark: SomeBenchmark
    task: str
    eval_length: int
    """In tokens."""
    evaluation: Inference
    seed: int | None = None
    """Of a benchmark that draws its samples."""
    data: str | None = None
    """Digest of the data set the benchmark reads."""
    published: str | None = None
    """Digest of the folder with published weights, which nothing in the study trained."""

    def cost(self, step: Step) -> StepCost:
        """Of the sequences the data set is known to give, else of those the benchmark draws."""
        answers = self.benchmark.answers(self.task)
        if "num_tokens" in step.axes:
            return self._with_answers(step.axes["num_tokens"], step.axes["mean_length"], answers)
        held_out = step.lineage[HeldOutSpec.kind]["tokens_per_domain"]
        text = self.benchmark.text_tokens(self.task, held_out)
        tokens = self.benchmark.num_tokens(self.task, self.eval_length, text)
        length = float(self.eval_length)
        if answers.number:  # then it is known how many sequences share the tokens
            length = min(length, tokens / answers.number)
        return self._with_answers(tokens, length, answers)

    def cost_of(self, sequences: Sequences) -> StepCost:
        """Cost of a cell that took these sequences through the model."""
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
        """Cells of one model at one length; of those that score running text, at all lengths."""
        axes = ("base_model", "method", "frozen", "seed")
        shared = "text" if _scores_text(step) else step.axes["eval_length"]
        return (*(step.axes[axis] for axis in axes), shared)

    @classmethod
    def unit_name(cls, step: Step) -> str:
        """The model and the length."""
        axes = step.axes
        row = axes["method"] if axes["frozen"] else f"{axes['method']}-tuned"
        what = "on text" if _scores_text(step) else f"at {axes['eval_length']}"
        return f"evaluate {axes['base_model']}-{row}-s{axes['seed']} {what}"

    @classmethod
    def is_divisible(cls, step: Step) -> bool:
        """Not where windows are read off longer ones: another worker would compute them."""
        return not _scores_text(step)

    @classmethod
    def rank(cls, step: Step) -> tuple[str, int]:
        """The longest first, text after text: shorter windows are read off longer ones.

        The losses of one text may be all that a worker has room for.
        """
        text = step.axes["task"] if _scores_text(step) else ""
        return text, -int(step.axes["eval_length"])


def kind_named(kind: str) -> type[StepSpec]:
    """The class of a kind; KeyError if there is none."""
    return KINDS[kind]


def spec_of(step: Step) -> StepSpec:
    """The step's spec with its plug-ins.

    Raises:
      SpecError: it was written by another version of a plug-in.
    """
    return KINDS[step.kind].parse(step.spec)


def step_cost(step: Step) -> StepCost:
    """Predicted cost of one step."""
    return spec_of(step).cost(step)


def _scores_text(step: Step) -> bool:
    return BENCHMARKS.load(step.axes["benchmark"]).scores_text
