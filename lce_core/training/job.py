"""One training run, as data that travels to the process which carries it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from lce_core.devices import DeviceName, resolve_dtype
from lce_core.execution import Checkpointing
from lce_core.recipe import Positions, Training
from lce_core.store.identity import fingerprint
from lce_core.training.recomputation import Kept


class TrainingJob(BaseModel):
    """One training run, as it travels to the process that carries it out."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    base_model: dict[str, Any]
    """`Plugin.identity` of the base model."""
    method: dict[str, Any] | None
    """`Plugin.identity` of the method, or None for the stock model."""
    training: Training
    from_scratch: bool
    """Start from random weights that follow from `seed`."""
    base_folder: Path | None
    """Weights, unless from scratch, and tokenizer to start from; None for the hub."""
    rows: Path
    """Packed rows to train on."""
    seed: int = Field(ge=0)
    num_steps: int = Field(gt=0)
    row_length: int = Field(gt=1)
    target_context: int = Field(gt=0)
    train_positions: Positions = "exact"
    out: Path
    """Existing folder that receives `model/` and `loss.jsonl`."""
    resume: Path
    """Folder that survives attempts; the caller removes it once the result is committed."""
    micro_batch_tokens: int = Field(default=8192, gt=0)
    device: DeviceName = "auto"
    processes: int = Field(default=1, ge=1)
    threads: int = Field(default=1, ge=1)
    checkpoint_seconds: float = Field(default=60.0, ge=0)
    """Least time between resume points; large ones are written less often than this."""
    sharding: Literal["auto", "replicate", "shard"] = "auto"
    """How several processes hold the model; "auto" shards on GPUs."""
    gradient_checkpointing: Checkpointing = "auto"
    states: Literal["fp32", "bf16"] | None = None
    """Precision of the states where the study allows either; None for the study's first choice."""
    compile_layers: bool = False
    plugin_folders: tuple[Path, ...] = ()

    @property
    def rows_per_step(self) -> int:
        """Rows of one update over all processes and micro-batches."""
        return self.training.tokens_per_step // self.row_length

    def is_sharded(self, device: torch.device) -> bool:
        """Whether each process holds a share of the model only."""
        # Copies of the model would each round bf16 states in their own way.
        fits = device.type == "cuda" or self.state_precision == "bf16"
        wanted = self.sharding == "shard" or (self.sharding == "auto" and fits)
        return wanted and self.processes > 1

    @property
    def state_precision(self) -> Literal["fp32", "bf16"]:
        """Of weights, gradients and moments between training steps."""
        allowed = self.training.state_precision
        return (self.states or "fp32") if allowed == "fp32_or_bf16" else allowed

    @property
    def state_dtype(self) -> torch.dtype:
        """Of weights, gradients and moments between training steps."""
        return resolve_dtype(self.state_precision)

    @property
    def kept(self) -> Kept:
        """What layers keep for the backward pass."""
        named = self.gradient_checkpointing
        return "none" if named == "auto" else named

    @property
    def micro_rows(self) -> int:
        """Rows of one forward pass of one process."""
        return max(1, self.micro_batch_tokens // self.row_length)

    def identity(self) -> str:
        """Fingerprint of what decides the result; resume points of another one are refused."""
        what = {"base_model", "method", "from_scratch", "seed", "num_steps", "row_length"}
        payload = self.model_dump(mode="json", include={*what, "target_context"})
        if self.train_positions != "exact":
            payload["train_positions"] = self.train_positions
        return fingerprint({**payload, "training": self.training.identity()})
