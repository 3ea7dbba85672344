"""Settings of a study: how models are trained, text is sampled and models are evaluated."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Precision = Literal["fp32", "bf16"]
StatePrecision = Literal["fp32", "bf16", "fp32_or_bf16"]
"""fp32 states take 16 bytes per parameter, bf16 ones 8: a 7B model and a row of 32k tokens fit into
80 GB. With fp32_or_bf16 the record states which precision was used."""
Kernel = Literal["auto", "sdpa", "flash", "flash3"]
Rotation = Literal["fp32", "stock"]
Positions = Literal["exact", "bf16", "bf16_angles"]
"""LCEG's code rounded positions to bf16 when it trained YaRN, and angles for PI and LongLoRA."""
TrainPositions = Literal["exact", "bf16", "bf16_angles", "pose"]
Packing = Literal["concatenated", "best_fit"]
DocumentMasks = Literal["none", "run_on", "restart"]

STRICT = ConfigDict(
    frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
)
"""No unknown keys and no type conversions in a study file."""


class Section(BaseModel):
    """Base class of the mappings in a study file. Objects are immutable."""

    model_config = STRICT

    def identity(self) -> dict[str, Any]:
        """Return the values that differ from their defaults: new keys change no existing id."""
        return self.model_dump(mode="json", exclude_defaults=True)


class Training(Section):
    """Optimiser and schedule of one training run; lengths and batches in tokens."""

    learning_rate: float = Field(gt=0)
    """Peak learning rate of AdamW."""
    tokens_per_step: int = Field(gt=0)
    """Global batch size in tokens, a multiple of the training row's length."""
    warmup_steps: int = Field(default=0, ge=0)
    """Training steps in which the learning rate rises linearly to its peak."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after warmup: constant, or linear or cosine decay to `final_fraction` of the
    peak."""
    final_fraction: float = Field(default=0.0, ge=0, le=1)
    """Fraction of the peak learning rate that a linear or cosine decay reaches one step after the
    last."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay of AdamW."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of Adam's first moment."""
    adam_beta2: float = Field(default=0.95, ge=0, lt=1)
    """Decay of Adam's second moment."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Maximum gradient norm; larger gradients are scaled down to it."""
    ema_decay: float = Field(default=0.0, ge=0, lt=1)
    """Decay of the exponential moving average of the weights. The run saves this average; with 0 it
    saves the last weights."""
    precision: Precision = "fp32"
    """Precision of matrix products: fp32 or bf16."""
    state_precision: StatePrecision = "fp32"
    """Precision of weights, gradients and Adam's moments between training steps. bf16 halves their
    memory, rounds stochastically and needs `precision: bf16`; activations between layers are then
    bf16 as well. fp32_or_bf16 uses bf16 only if fp32 is out of memory."""
    param_dtype: Precision = "fp32"
    """Dtype of the weights in forward and backward passes, as FSDP2 defines it. bf16 keeps weights,
    gradients and moments in fp32 between passes, and computes every pass, activations between
    layers included, with bf16 copies of the weights. It needs `precision: bf16` and
    `state_precision: fp32`."""
    rounding: Literal["philox"] | None = None
    """Random number generator of the stochastic rounding; philox whenever states may be bf16."""
    kernel: Kernel = "auto"
    """Family of attention kernels: auto, sdpa, flash or flash3."""
    packing: Packing = "concatenated"
    """How documents become training rows. concatenated: they are joined, and the result is cut into
    rows. best_fit: each row holds whole documents and is padded; only documents longer than a row
    are cut."""
    document_masks: DocumentMasks = "none"
    """Whether a token sees earlier documents of its training row. none: it does, and positions run
    on. run_on: it sees only its own document, and positions run on. restart: it sees only its own
    document, whose positions begin at 0."""

    @model_validator(mode="before")
    @classmethod
    def _rounded_by(cls, given: Any) -> Any:
        # Set the key for every run that may have bf16 states, so that its id differs from earlier
        # runs, whose noise came from torch's generators. Runs with fp32 states round nothing.
        if isinstance(given, Mapping) and given.get("rounding") in (None, "philox"):
            half = given.get("state_precision", "fp32") != "fp32"
            return {**given, "rounding": "philox" if half else None}
        return given


class Upsampling(Section):
    """Sampling of training text by domain and by length of the documents.

    By default "per-source length upsampling" of Fu et al. 2024, as LCEG uses it (section 4): long
    documents are kept, and most short ones are dropped.
    """

    long_document_tokens: int = Field(default=4096, gt=0)
    """Documents with at least this many tokens are long. They are always kept."""
    short_keep_rate: float = Field(default=0.1, gt=0, le=1)
    """Probability of keeping a shorter document."""
    long_share: float | None = Field(default=None, ge=0, le=1)
    """Share of each domain's tokens from long documents, such as 0.34; short documents give the
    rest. By default it follows from `short_keep_rate`, which has no effect beside this key."""
    domain_shares: Mapping[str, Annotated[float, Field(ge=0, le=1)]] | None = None
    """Share of the tokens from each domain, such as {code: 0.3, prose: 0.7}. Other domains give
    none. By default each domain keeps its share of the corpus."""


class Inference(Section):
    """Settings of the evaluated model: precision, attention kernels and RoPE arithmetic."""

    precision: Precision = "fp32"
    """Precision of the model: fp32 or bf16."""
    kernel: Kernel = "auto"
    """Family of attention kernels: auto, sdpa, flash or flash3."""
    rotation: Rotation | None = None
    """Arithmetic of RoPE's rotation of queries and keys if `precision` is bf16. fp32 (the default)
    rotates in fp32 and rounds the result once; stock first rounds cosines and sines to bf16, as
    transformers does.
    Methods whose own attention function rotates always rotate in fp32."""

    @model_validator(mode="before")
    @classmethod
    def _rotated_in(cls, given: Any) -> Any:
        # Set the key for every bf16 cell, so that its id differs from cells with stock cosines.
        # fp32 cells omit the key, because they have no alternative.
        if not isinstance(given, Mapping):
            return given
        rest = {key: value for key, value in given.items() if (key, value) != ("rotation", "fp32")}
        half = given.get("precision") == "bf16"
        return {"rotation": "fp32", **rest} if half and not rest.get("rotation") else rest


class Evaluation(Inference):
    """Settings shared by all benchmarks of the study."""

    held_out_tokens: int = Field(default=65536, gt=0)
    """Number of tokens per domain that training does not use, for perplexity and similar scores."""
    held_out_document_tokens: int | None = Field(default=None, gt=0)
    """Maximum tokens to take from a held-out document; None for whole documents. Windows of one
    document are one independent sample, so shorter excerpts of more documents give more certain
    results with as many tokens."""

    def inference(self) -> Inference:
        """Return the settings that enter the fingerprint of every cell."""
        return Inference(precision=self.precision, kernel=self.kernel, rotation=self.rotation)
