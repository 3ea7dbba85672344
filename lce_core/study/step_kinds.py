"""The kinds of steps in a plan: token shards, rows, held-out text, searches, training, cells.

To add a kind, define a class here, and in `lce_core.runners` a function that computes its steps.
Code that groups, prices, schedules or displays steps uses the class and needs no change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationError

from lce_core.benchmarks import BENCHMARKS, Benchmark
from lce_core.corpora import CORPORA, Corpus
from lce_core.data.sequences import Answers, Sequences
from lce_core.errors import SpecError
from lce_core.methods import METHODS, Method, ParameterSearch
from lce_core.models import MODELS, LanguageModel
from lce_core.recipe import Inference, Packing, Section, Training, TrainPositions, Upsampling
from lce_core.registry import Registry
from lce_core.spec_errors import spec_error
from lce_core.statistics.estimates import INTERVALS
from lce_core.store.steps import Step
from lce_core.study.cost import (
    StepCost,
    decoding_cost,
    evaluation_cost,
    finetune_cost,
    num_parameters,
    pretraining_cost,
    total_cost,
)
from lce_core.study.variants import variant_name


def _plugin(registry: Registry[Any], value: object) -> object:
    return registry.from_identity(value) if isinstance(value, Mapping) else value


def _installed_intervals(value: dict[str, Any]) -> dict[str, Any]:
    if value != INTERVALS:
        raise SpecError(
            "intervals",
            value,
            f"{INTERVALS}, as this version of lce computes them",
            "plan the study again with this version of lce",
        )
    return value


_AS_IDENTITY = PlainSerializer(lambda plugin: plugin.identity())
SomeCorpus = Annotated[Corpus, BeforeValidator(partial(_plugin, CORPORA)), _AS_IDENTITY]
SomeModel = Annotated[LanguageModel, BeforeValidator(partial(_plugin, MODELS)), _AS_IDENTITY]
SomeMethod = Annotated[Method, BeforeValidator(partial(_plugin, METHODS)), _AS_IDENTITY]
SomeBenchmark = Annotated[Benchmark, BeforeValidator(partial(_plugin, BENCHMARKS)), _AS_IDENTITY]


class Tokenizer(Section):
    """Identity of a base model's tokenizer; models with equal ones share token steps."""

    name: str
    version: int
    weights: str | None = None
    """Digest of a local folder; None for the hub."""
    parameters: Mapping[str, Any] = Field(default_factory=dict)
    """Parameters of the base model that affect its tokenizer."""


KINDS: dict[str, type[StepSpec]] = {}


class StepSpec(Section):
    """Base class of step kinds. The fields of a subclass are the settings of a step.

    The fingerprint contains all required fields, and optional ones that differ from their defaults.
    """

    kind: ClassVar[str]
    version: ClassVar[int]
    order: ClassVar[int]
    """Steps of lower kinds start first, because later kinds read their results."""
    submitted_as: ClassVar[str]
    """Name of the Prefect task that computes steps of this kind."""
    place: ClassVar[tuple[str, ...]] = ()
    """Axes (method, seed, length, ...) that identify a step within a study. If a step with equal
    axes has another id, its settings changed."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if "kind" in vars(cls):
            KINDS[cls.kind] = cls

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            for one in error.errors():  # a plug-in's own error is clearer than pydantic's
                if isinstance(refusal := one.get("ctx", {}).get("error"), SpecError):
                    raise refusal from None
            raise spec_error(error, cls.kind, cls) from None

    def cost(self, step: Step) -> StepCost:  # noqa: ARG002 - of a kind that runs a model
        """Predict the cost of a step. It is zero for steps that run no model."""
        return StepCost()

    @classmethod
    def unit(cls, step: Step) -> tuple[object, ...]:
        """Return a grouping key. Steps with equal keys form a unit, which one worker computes."""
        return (step.fingerprint,)

    @classmethod
    def unit_name(cls, step: Step) -> str:
        return f"{step.kind} {step.name}"

    @classmethod
    def is_divisible(cls, step: Step) -> bool:  # noqa: ARG003 - of a kind with more steps in a unit
        """Return True if two workers finish the step's unit sooner than one."""
        return True

    @classmethod
    def rank(cls, step: Step) -> tuple[str, int]:  # noqa: ARG003 - of a kind with more in a unit
        """Return the sort key within a unit; equal keys keep the plan's order."""
        return "", 0


class TextSpec(StepSpec):
    """Text of a corpus as tokens, whole or cut into rows or held-out text."""

    submitted_as: ClassVar[str] = "sample"

    corpus: SomeCorpus
    digest: str | None
    """`Corpus.digest`; None if the text is missing, so that the step cannot be computed."""
    tokenizer: Tokenizer


class TokensSpec(TextSpec):
    """Tokenise a streamed corpus into shards, which steps of rows and held-out text read."""

    kind: ClassVar[str] = "tokens"
    version: ClassVar[int] = 2
    order: ClassVar[int] = -1


class RowsSpec(TextSpec):
    """Pack tokenised documents into training rows of equal length."""

    kind: ClassVar[str] = "rows"
    version: ClassVar[int] = 2
    order: ClassVar[int] = 1

    row_length: int
    num_rows: int
    upsampling: Upsampling
    seed: int
    leaves_out_copies: bool = False
    """`Corpus.leaves_out_copies`."""
    packing: Packing = "concatenated"


class HeldOutSpec(TextSpec):
    """Tokenise text for evaluation that is not trained on."""

    kind: ClassVar[str] = "held_out"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 0

    tokens_per_domain: int
    document_tokens: int | None = None
    """Maximum tokens of a document; None for whole documents."""
    after_tokens: int | None = None
    """`tokens_per_domain` of the reported text, whose documents this validation text leaves out.
    None for the reported text itself."""
    needed: list[str] | None = None
    """Domains that must have text; None for all, [] for none."""


class TrainingSpec(StepSpec):
    """A training run on packed rows, the output of the parent step `rows`."""

    submitted_as: ClassVar[str] = "train"
    place: ClassVar[tuple[str, ...]] = ("base_model", "method", "seed")
    curve: ClassVar[str]
    """Loss metric in MLflow."""

    base_model: SomeModel
    training: Training
    num_steps: int
    row_length: int
    seed: int
    data_seed: int | None = None
    """Seed of the order of rows and of random choices per row; `seed` by default."""

    @staticmethod
    def curve_of(kind: str) -> str:
        spec = kind_named(kind)
        assert issubclass(spec, TrainingSpec), f"steps of kind {kind} train nothing"
        return spec.curve

    @property
    def num_tokens(self) -> int:
        return self.num_steps * self.training.tokens_per_step

    @property
    def checkpoint_bytes(self) -> int:
        return (2 if self.training.state_precision == "bf16" else 4) * num_parameters(
            self.base_model
        )

    @property
    def resume_bytes(self) -> int:
        """Two resume points: the older one is deleted when the newer one is complete."""
        return 2 * 3 * self.checkpoint_bytes  # weights and AdamW's two moments


class BaseSpec(TrainingSpec):
    """Train a base model from random weights."""

    kind: ClassVar[str] = "base"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 2
    curve: ClassVar[str] = "pretrain/loss"

    def cost(self, step: Step) -> StepCost:  # noqa: ARG002 - all of it is in the spec
        return pretraining_cost(self.base_model, self.num_tokens, self.row_length)


class EvaluationSpec(StepSpec):
    """A step that evaluates a base model with a method."""

    submitted_as: ClassVar[str] = "evaluate"

    base_model: SomeModel
    weights: str | None = None
    """Digest of the base model's local folder; None for the hub."""
    method: SomeMethod
    target_context: int
    evaluation: Inference

    def _cost(self, tokens: int, length: float) -> StepCost:
        target = self.target_context
        return evaluation_cost(self.base_model, self.method, target, tokens, length)


class SearchSpec(EvaluationSpec):
    """Search for the parameters that `method` leaves open.

    Losses of texts of `target_context` tokens are measured on the parent `validation`, with the
    weights of the parent `checkpoint` or else the base model's. Cells and training runs read the
    parameters from their parent `search`.
    """

    kind: ClassVar[str] = "search"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 3
    place: ClassVar[tuple[str, ...]] = ("base_model", "method", "frozen", "seed")
    published: ClassVar[str | None] = None

    @property
    def search(self) -> ParameterSearch:
        search = self.method.open_search()
        assert search is not None, "only a method with open parameters has a search"
        return search

    def cost(self, step: Step) -> StepCost:  # noqa: ARG002 - all of it is in the spec
        """Return the cost of all trials, if none of them is a repetition."""
        length = self.target_context
        return self._cost(self.search.max_trials * self.search.samples * length, length)


class FinetuneSpec(TrainingSpec):
    """Fine-tune a base model with a method.

    The run starts from the weights of the parent `base` or else the base model's. A parent `choice`
    replaces the value of one field of `training`; a parent `search` determines parameters of the
    method.
    """

    kind: ClassVar[str] = "finetune"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 4
    curve: ClassVar[str] = "train/loss"

    weights: str | None = None
    """Digest of the base model's local folder; None for the hub."""
    method: SomeMethod
    target_context: int
    train_positions: TrainPositions = "exact"

    def cost(self, step: Step) -> StepCost:  # noqa: ARG002 - all of it is in the spec
        target, length = self.target_context, self.row_length
        return finetune_cost(self.base_model, self.method, target, self.num_tokens, length)


class ChoiceSpec(StepSpec):
    """Choose the value of a training setting with the lowest validation NLL.

    Its parents are cells: the trial of each value, scored on each domain of the validation text.
    """

    kind: ClassVar[str] = "choice"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 6
    submitted_as: ClassVar[str] = "evaluate"
    place: ClassVar[tuple[str, ...]] = ("base_model", "method")

    field: str
    """Tuned field of `training`."""
    values: list[float]
    """Values tried, in the order of the trials."""
    domains: list[str]
    """Equally weighted domains of the validation text."""

    @staticmethod
    def role(number: int, domain: str) -> str:
        return f"trial_{number}_{domain}"


class CellSpec(EvaluationSpec):
    """A cell: one benchmark task at one length for one variant of a model.

    The weights are those of the parent `checkpoint`, else published weights (`published`), else the
    base model's. A parent `search` determines parameters of the method.
    """

    kind: ClassVar[str] = "cell"
    version: ClassVar[int] = 1
    order: ClassVar[int] = 5
    place: ClassVar[tuple[str, ...]] = (
        "base_model", "method", "frozen", "seed", "benchmark", "task", "eval_length",
    )  # fmt: skip

    benchmark: SomeBenchmark
    task: str
    eval_length: int
    intervals: Annotated[dict[str, Any], AfterValidator(_installed_intervals)]
    """Settings of confidence intervals, equal to `statistics.estimates.INTERVALS`."""
    seed: int | None = None
    """Seed of the benchmark's samples; None if it needs no random numbers."""
    data: str | None = None
    """Digest of the benchmark's data set; None without one, or if it is missing."""
    published: str | None = None
    """Digest of published weights; None without them, or if they are missing."""

    def cost(self, step: Step) -> StepCost:
        """Predict the cost, from the lengths of the data set's prompts if the plan knows them."""
        cost = self.prompts_cost(step)
        for length, number in self.benchmark.control_sequences(self.task).counts.items():
            asked = Answers(number, self.benchmark.answers(self.task).longest)
            cost = total_cost([cost, self._with_answers(number * length, length, asked)])
        return cost

    def prompts_cost(self, step: Step) -> StepCost:
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

    def cost_of(self, *prompts: Sequences) -> StepCost:
        """Return a finished cell's cost without generated tokens, from its prompts' lengths."""
        return total_cost([self._cost(one.num_tokens, one.mean_length) for one in prompts])

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

    @classmethod
    def unit(cls, step: Step) -> tuple[object, ...]:
        """Group one model's cells: those of running text over all lengths, others per length."""
        axes = ("base_model", "method", "frozen", "seed")
        shared = "text" if _scores_text(step) else step.axes["eval_length"]
        return (*(step.axes[axis] for axis in axes), shared)

    @classmethod
    def unit_name(cls, step: Step) -> str:
        axes = step.axes
        variant = variant_name(axes["method"], axes["frozen"])
        what = "on text" if _scores_text(step) else f"at {axes['eval_length']}"
        return f"evaluate {axes['base_model']}-{variant}-s{axes['seed']} {what}"

    @classmethod
    def is_divisible(cls, step: Step) -> bool:
        """Return False for running text: two workers would both compute windows to reuse."""
        return not _scores_text(step)

    @classmethod
    def rank(cls, step: Step) -> tuple[str, int]:
        """Sort longest cells first: shorter windows reuse the losses of longer ones.

        Running text is sorted by text (task) before: memory may hold the losses of one text only.
        """
        text = step.axes["task"] if _scores_text(step) else ""
        return text, -int(step.axes["eval_length"])


def kind_named(kind: str) -> type[StepSpec]:
    return KINDS[kind]


def spec_of(step: Step) -> StepSpec:
    return KINDS[step.kind].parse(step.spec)


def step_cost(step: Step) -> StepCost:
    return spec_of(step).cost(step)


def _scores_text(step: Step) -> bool:
    return BENCHMARKS.load(step.axes["benchmark"]).scores_text
