"""The study file: what is computed.

`lce_core.study.study_file` reads a StudySpec from YAML and refuses every key it does not
understand. What a step depends on goes into its fingerprint (`lce_core.study.plan`); Execution is
recorded beside results and never hashed.

Loading this module loads no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from lce_core.benchmarks import Benchmark
from lce_core.corpora import Corpus
from lce_core.errors import SpecError
from lce_core.methods import Method
from lce_core.models import MODELS, LanguageModel
from lce_core.recipe import STRICT, Evaluation, Positions, Section, Training, Upsampling


class MethodEntry(Section):
    """An entry of `methods`: a method, frozen or fine-tuned."""

    method: Method
    label: str = Field(pattern=r"^[a-z0-9][a-z0-9_]*$")
    """Name in tables: the method's own unless two variants of one method are compared."""
    tuned: bool = False
    """Fine-tune on `train_tokens` at the target context before evaluating."""
    train_positions: Positions = "exact"
    """Fine-tune on positions rounded to bf16 (`bf16`), or on angles rounded so (`bf16_angles`)."""

    @model_validator(mode="after")
    def _trainable(self) -> MethodEntry:
        name = self.method.plugin_name
        if self.tuned and self.method.training == "none":
            raise SpecError(
                "tuned",
                f"tuned: true for {name}, which works at inference only",
                "a method that can be trained",
                "remove `tuned`",
            )
        if not self.tuned and self.method.training == "required":
            raise SpecError(
                "tuned",
                f"tuned: false for {name}, which is nothing without training",
                "a trained variant of this method",
                "add `tuned: true`",
            )
        if not self.tuned and self.train_positions != "exact":
            raise SpecError(
                "train_positions",
                f"{self.train_positions} for {name}, which is not trained",
                "a tuned variant where positions of training are rounded",
                "add `tuned: true`, or leave out `train_positions`",
            )
        return self

    @property
    def name(self) -> str:
        """Label and state, as in "yarn" or "yarn-tuned"."""
        return f"{self.label}-tuned" if self.tuned else self.label


Length = Annotated[int, Field(gt=0)]


class BenchmarkEntry(Section):
    """One benchmark at some lengths."""

    benchmark: Benchmark
    lengths: tuple[Length, ...] = Field(min_length=1)
    """Evaluated context lengths in tokens, generated ones included."""
    tasks: tuple[str, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> BenchmarkEntry:
        _refuse_repeats("lengths", self.lengths)
        _refuse_repeats("tasks", self.tasks)
        return self


class StudySpec(BaseModel):
    """A whole study: base models x methods x seeds x benchmarks x lengths."""

    model_config = STRICT

    study: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    """Kebab-case name."""
    hypothesis: str
    """What the study expects to find, written before it runs."""
    target_context: int = Field(gt=0)
    """Tokens of context the methods extend to (C')."""
    train_tokens: int = Field(gt=0)
    """Tokens each tuned method is trained on, rounded down to whole steps."""
    corpus: Corpus
    base_models: tuple[LanguageModel, ...] = Field(min_length=1)
    methods: tuple[MethodEntry, ...] = Field(min_length=1)
    training: Training
    benchmarks: tuple[BenchmarkEntry, ...] = Field(min_length=1)
    seeds: tuple[int, ...] = Field(min_length=1)
    upsampling: Upsampling = Upsampling()
    evaluation: Evaluation = Evaluation()

    @model_validator(mode="after")
    def _consistent(self) -> StudySpec:
        if self.training.tokens_per_step % self.target_context:
            raise SpecError(
                "training.tokens_per_step",
                self.training.tokens_per_step,
                f"a multiple of target_context, {self.target_context}",
                "change one of them",
            )
        if self.evaluation.rotation == "stock" and self.evaluation.precision == "fp32":
            raise SpecError(
                "evaluation.rotation",
                "stock with precision fp32, where no cosine is rounded",
                "stock rotation with precision bf16 alone",
                "leave out rotation, or set precision: bf16",
            )
        if min(self.seeds) < 0 or max(self.seeds) >= 1 << 63:
            raise SpecError("seeds", list(self.seeds), "seeds from 0 to 2^63 - 1", "choose others")
        _refuse_repeats("seeds", self.seeds)
        _refuse_repeats("base_models", [base.known_as for base in self.base_models])
        for base in self.base_models:
            if base.known_as != base.plugin_name and base.known_as in MODELS.names():
                raise SpecError(
                    "base_models",
                    f"{base.known_as} for a {base.plugin_name}",
                    "a name that no registered base model has",
                    "give it another `label`",
                )
        _refuse_repeats("methods", [variant.name for variant in self.methods])
        _refuse_repeats("benchmarks", [entry.benchmark.plugin_name for entry in self.benchmarks])
        return self


def _refuse_repeats(what: str, values: Sequence[object]) -> None:
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    if repeated:
        raise SpecError(
            what,
            f"{', '.join(repeated)} more than once",
            "distinct entries",
            "name each once, or give variants of a method or model a `label`",
        )
