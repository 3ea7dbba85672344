"""The study file: what is computed (StudySpec) and how (Execution).

`lce_core.study_file` reads a StudySpec from YAML and refuses every key it does not understand. What
a step depends on goes into its fingerprint (`lce_core.plan`); Execution is recorded beside results
and never hashed.

Loading this module loads no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lce_core.benchmarks import BENCHMARKS, Benchmark
from lce_core.corpora import CORPORA, Corpus
from lce_core.methods import METHODS, Method
from lce_core.models import MODELS
from lce_core.models import BaseModel as Base

Precision = Literal["fp32", "bf16"]
Kernel = Literal["auto", "sdpa", "flash"]

_STRICT = ConfigDict(
    frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
)


class Section(BaseModel):
    """A mapping of the study file with typed, known keys."""

    model_config = _STRICT

    def identity(self) -> dict[str, Any]:
        """The keys that are not at their default, for fingerprints."""
        return self.model_dump(mode="json", exclude_defaults=True)


class Training(Section):
    """Optimiser and schedule of one training run; lengths and batches in tokens."""

    learning_rate: float = Field(gt=0)
    tokens_per_step: int = Field(gt=0)
    """Global batch in tokens: a multiple of the row length."""
    warmup_steps: int = Field(default=0, ge=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After warmup: hold, fall linearly to zero, or fall by a cosine to `final_fraction`."""
    final_fraction: float = Field(default=0.0, ge=0, le=1)
    """Learning rate at the last step over its peak, for cosine."""
    weight_decay: float = Field(default=0.0, ge=0)
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    adam_beta2: float = Field(default=0.95, ge=0, lt=1)
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest gradient norm."""
    ema_decay: float = Field(default=0.0, ge=0, lt=1)
    """Decay of an exponential moving average of the weights, which is then saved; 0: off."""
    precision: Precision = "fp32"
    kernel: Kernel = "auto"


class Upsampling(Section):
    """Per-source length upsampling (Fu et al. 2024, as used by LCEG section 4)."""

    long_document_tokens: int = Field(default=4096, gt=0)
    """Documents with at least this many tokens are always kept."""
    short_keep_rate: float = Field(default=0.1, gt=0, le=1)
    """Probability of keeping a shorter one; token shares of the domains do not change."""


class Evaluation(Section):
    """Settings shared by all benchmarks of the study."""

    precision: Precision = "fp32"
    kernel: Kernel = "auto"
    held_out_tokens: int = Field(default=65536, gt=0)
    """Tokens of held-out text kept for each domain."""


class MethodEntry(Section):
    """One row of the study: a method, frozen or fine-tuned."""

    method: Method
    label: str = Field(pattern=r"^[a-z0-9][a-z0-9_]*$")
    """Name in tables: the method's own unless two variants of one method are compared."""
    tuned: bool = False
    """Fine-tune on `train_tokens` at the target context before evaluating."""

    @model_validator(mode="after")
    def _trainable(self) -> MethodEntry:
        name = self.method.plugin_name
        if self.tuned and self.method.training == "none":
            raise ValueError(f"{name} works at inference only; remove `tuned`")
        if not self.tuned and self.method.training == "required":
            raise ValueError(f"{name} is nothing without training; add `tuned: true`")
        return self

    @property
    def row(self) -> str:
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

    model_config = _STRICT

    study: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    """Kebab-case name."""
    hypothesis: str
    """What the study expects to find, written before it runs."""
    target_context: int = Field(gt=0)
    """Tokens of context the methods extend to (C')."""
    train_tokens: int = Field(gt=0)
    """Tokens each tuned method is trained on, rounded down to whole steps."""
    corpus: Corpus
    base_models: tuple[Base, ...] = Field(min_length=1)
    methods: tuple[MethodEntry, ...] = Field(min_length=1)
    training: Training
    benchmarks: tuple[BenchmarkEntry, ...] = Field(min_length=1)
    seeds: tuple[int, ...] = Field(min_length=1)
    upsampling: Upsampling = Upsampling()
    evaluation: Evaluation = Evaluation()

    @model_validator(mode="after")
    def _consistent(self) -> StudySpec:
        if self.training.tokens_per_step % self.target_context:
            raise ValueError(
                f"training.tokens_per_step {self.training.tokens_per_step} is not a multiple of"
                f" target_context {self.target_context}"
            )
        if min(self.seeds) < 0 or max(self.seeds) >= 1 << 63:
            raise ValueError(f"seeds lie in 0..2^63 - 1, got {list(self.seeds)}")
        _refuse_repeats("seeds", self.seeds)
        _refuse_repeats("base_models", [base.plugin_name for base in self.base_models])
        _refuse_repeats("methods (give variants a `label`)", [row.row for row in self.methods])
        _refuse_repeats("benchmarks", [entry.benchmark.plugin_name for entry in self.benchmarks])
        return self


def _refuse_repeats(what: str, values: Sequence[object]) -> None:
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    if repeated:
        raise ValueError(f"{what} are distinct, got {', '.join(repeated)} more than once")


class Execution(BaseModel):
    """How a study is carried out here; recorded, never part of any id."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path
    """LCE_HOME: where the store lies."""
    slots: int = Field(default=1, ge=1)
    """Steps at the same time on this host: one per GPU, or one per CPU core."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    processes: int = Field(default=1, ge=1)
    """Processes of one training run (accelerate launch when more than one)."""
    threads: int = Field(default=1, ge=1)
    """CPU threads of each worker."""
    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Upper limit of tokens in one forward pass of one process."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, the same numbers."""
    checkpoint_seconds: float = Field(default=60.0, gt=0)
    """Time between resume points of a training run."""
    max_attempts: int = Field(default=3, ge=1)
    """Attempts of a step whose failures may pass."""
    model_folders: dict[str, Path] = {}
    """Folder of a base model's weights and tokenizer, by registered name, instead of the hub."""
    data_folders: dict[str, Path] = {}
    """Folder of a data set, by name; or hub:OWNER/NAME@COMMIT."""
    plugin_folders: tuple[Path, ...] = ()
    """Folders with methods/, benchmarks/, models/, corpora/ of one's own."""


def add_plugin_folders(folders: tuple[Path, ...]) -> None:
    """Lets plug-ins in `<folder>/methods`, `/benchmarks`, `/models` and `/corpora` take part."""
    for folder in folders:
        METHODS.add_folder(folder / "methods")
        BENCHMARKS.add_folder(folder / "benchmarks")
        MODELS.add_folder(folder / "models")
        CORPORA.add_folder(folder / "corpora")
