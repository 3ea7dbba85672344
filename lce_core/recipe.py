"""The words of a study's recipe: how models are trained, text is sampled and answers are computed.

A leaf of the package, so that every room can name its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Precision = Literal["fp32", "bf16"]
StatePrecision = Literal["fp32", "bf16", "fp32_or_bf16"]
"""Of weights, gradients and moments between training steps. fp32: 16 bytes a parameter; bf16,
rounded stochastically: 8, so that 80 GB hold 7B parameters and one row of 32k tokens. fp32_or_bf16:
bf16 where fp32 is out of memory; the record says which it was."""
Kernel = Literal["auto", "sdpa", "flash"]
Rotation = Literal["fp32", "stock"]
Positions = Literal["exact", "bf16", "bf16_angles"]
"""What positions are in angles: exact; rounded to bf16, as in LCEG's training with YaRN; or rounded
together with frequencies and products, as in its training with PI and LongLoRA."""

STRICT = ConfigDict(
    frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
)
"""Of every mapping in a study file: nothing unknown, nothing converted, nothing changed later."""


class Section(BaseModel):
    """A mapping of the study file with typed, known keys."""

    model_config = STRICT

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
    state_precision: StatePrecision = "fp32"
    """bf16 keeps weights and moments in half the memory, rounded stochastically; it needs
    `precision: bf16`, and what passes between layers is bf16 as well then."""
    kernel: Kernel = "auto"


class Upsampling(Section):
    """Per-source length upsampling (Fu et al. 2024, as used by LCEG section 4)."""

    long_document_tokens: int = Field(default=4096, gt=0)
    """Documents with at least this many tokens are always kept."""
    short_keep_rate: float = Field(default=0.1, gt=0, le=1)
    """Probability of keeping a shorter one; token shares of the domains do not change."""


class Inference(Section):
    """How a model is run to be evaluated."""

    precision: Precision = "fp32"
    kernel: Kernel = "auto"
    rotation: Rotation | None = None
    """How queries and keys are rotated where precision is bf16: in fp32 and rounded once, the
    default, or with cosines rounded to bf16, as transformers does it (stock). Attention that
    rotates by itself always does so in fp32."""

    @model_validator(mode="before")
    @classmethod
    def _rotated_in(cls, given: Any) -> Any:
        # Said of every bf16 cell, whose id thus differs from those of stock cosines; of no fp32
        # cell, where nothing else is possible.
        if not isinstance(given, Mapping):
            return given
        rest = {key: value for key, value in given.items() if (key, value) != ("rotation", "fp32")}
        half = given.get("precision") == "bf16"
        return {"rotation": "fp32", **rest} if half and not rest.get("rotation") else rest


class Evaluation(Inference):
    """Settings shared by all benchmarks of the study."""

    held_out_tokens: int = Field(default=65536, gt=0)
    """Tokens of held-out text kept for each domain."""

    def inference(self) -> Inference:
        """The settings that bear on every cell, whatever it reads."""
        return Inference(precision=self.precision, kernel=self.kernel, rotation=self.rotation)
