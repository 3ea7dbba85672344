"""Description of one training run, as data that is sent to the process that executes it."""

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
    """Everything a training process needs to know about its run; sent to it as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    base_model: dict[str, Any]
    """`Plugin.identity` of the base model."""
    method: dict[str, Any] | None
    """`Plugin.identity` of the method; None trains the unmodified model."""
    training: Training
    from_scratch: bool
    """Initialise random weights from `seed` instead of loading the base model's weights."""
    base_folder: Path | None
    """Folder with the tokenizer and, unless `from_scratch`, the weights; None loads from the hub.
    """
    rows: Path
    """Folder of the packed rows to train on."""
    seed: int = Field(ge=0)
    num_steps: int = Field(gt=0)
    row_length: int = Field(gt=1)
    target_context: int = Field(gt=0)
    train_positions: Positions = "exact"
    out: Path
    """Existing folder that receives `model/` and `loss.jsonl`."""
    resume: Path
    """Folder of resume points, kept across attempts; the caller deletes it after the commit."""
    micro_batch_tokens: int = Field(default=8192, gt=0)
    device: DeviceName = "auto"
    processes: int = Field(default=1, ge=1)
    threads: int = Field(default=1, ge=1)
    checkpoint_seconds: float = Field(default=60.0, ge=0)
    """Minimum seconds between resume points; the trainer waits longer if a point is slow to write.
    """
    sharding: Literal["auto", "replicate", "shard"] = "auto"
    """Placement of the model with several processes; "auto" shards on GPUs and with bf16 states."""
    gradient_checkpointing: Checkpointing = "auto"
    states: Literal["fp32", "bf16"] | None = None
    """Precision of the states if the study allows both; None means fp32, the study's first choice.
    """
    compile_layers: bool = False
    plugin_folders: tuple[Path, ...] = ()

    @property
    def rows_per_step(self) -> int:
        """Rows of one update, summed over all processes and micro-batches."""
        return self.training.tokens_per_step // self.row_length

    def is_sharded(self, device: torch.device) -> bool:
        """Return True if each process holds only a shard of every weight."""
        # With bf16 states every process would round its own copy of the weights differently.
        fits = device.type == "cuda" or self.state_precision == "bf16"
        wanted = self.sharding == "shard" or (self.sharding == "auto" and fits)
        return wanted and self.processes > 1

    @property
    def state_precision(self) -> Literal["fp32", "bf16"]:
        """Precision of weights, gradients and moments between training steps."""
        allowed = self.training.state_precision
        return (self.states or "fp32") if allowed == "fp32_or_bf16" else allowed

    @property
    def state_dtype(self) -> torch.dtype:
        """`state_precision` as a torch dtype."""
        return resolve_dtype(self.state_precision)

    @property
    def kept(self) -> Kept:
        """Activations that layers keep for the backward pass; "auto" starts with all of them."""
        named = self.gradient_checkpointing
        return "none" if named == "auto" else named

    @property
    def micro_rows(self) -> int:
        """Rows in one forward pass of one process."""
        return max(1, self.micro_batch_tokens // self.row_length)

    def identity(self) -> str:
        """Return a fingerprint of everything that decides the result.

        The trainer refuses resume points with another fingerprint.
        """
        what = {"base_model", "method", "from_scratch", "seed", "num_steps", "row_length"}
        payload = self.model_dump(mode="json", include={*what, "target_context"})
        if self.train_positions != "exact":
            payload["train_positions"] = self.train_positions
        return fingerprint({**payload, "training": self.training.identity()})
