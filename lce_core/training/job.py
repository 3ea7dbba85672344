"""Description of one training run, as data that is sent to the process that executes it."""

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from lce_core.devices import DeviceName, resolve_dtype
from lce_core.execution import AccelerateConfig, Checkpointing
from lce_core.recipe import Training, TrainPositions
from lce_core.store.identity import fingerprint


class TrainingJob(BaseModel):
    """All settings of one training run; sent to its processes as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    base_model: dict[str, Any]
    """Name, version and parameters of the base model's plug-in (`Plugin.identity`)."""
    method: dict[str, Any] | None
    """Name, version and parameters of the method's plug-in; None trains the unmodified model."""
    training: Training
    from_scratch: bool
    """Initialise random weights from `seed` instead of loading the base model's weights."""
    base_folder: Path | None
    """Folder with the tokenizer and, unless `from_scratch`, the weights; None means the hub."""
    rows: Path
    """Folder of the packed training rows (sequences of `row_length` token ids)."""
    seed: int = Field(ge=0)
    data_seed: int | None = Field(default=None, ge=0)
    """Seed of the order of rows and of random choices per row. None means `seed`."""
    num_steps: int = Field(gt=0)
    row_length: int = Field(gt=1)
    target_context: int = Field(gt=0)
    train_positions: TrainPositions = "exact"
    out: Path
    """Existing folder that receives the checkpoint `model/` and the loss log `loss.jsonl`."""
    resume: Path
    """Folder for resume points; the caller deletes it once the checkpoint is stored."""
    micro_batch_tokens: int = Field(default=8192, gt=0)
    device: DeviceName = "auto"
    processes: int = Field(default=1, ge=1)
    """Processes on all machines together."""
    accelerate_config: AccelerateConfig | None = None
    """Machines that share the run; None means this machine."""
    threads: int = Field(default=1, ge=1)
    checkpoint_seconds: float = Field(default=60.0, ge=0)
    """Minimum seconds between resume points. The trainer waits longer if writing is slow."""
    step_timeout_seconds: float = Field(default=600.0, gt=0)
    """Maximum seconds that a process waits for the others during a training step, then fails."""
    sharding: Literal["auto", "shard"] = "auto"
    """"shard": each process has some rows of every weight; "auto": so on GPUs or in bf16."""
    gradient_checkpointing: Checkpointing = "auto"
    states: Literal["fp32", "bf16"] | None = None
    """Precision of weights, gradients and moments if the study allows both; None means fp32."""
    compile_layers: bool = True
    """Compile each decoder layer and the update of bf16 states with torch.compile on CUDA."""
    plugin_folders: tuple[Path, ...] = ()

    @property
    def seed_of_rows(self) -> int:
        return self.seed if self.data_seed is None else self.data_seed

    @property
    def rows_per_step(self) -> int:
        return self.training.tokens_per_step // self.row_length

    @property
    def machines(self) -> AccelerateConfig:
        return self.accelerate_config or AccelerateConfig(num_processes=self.processes)

    def is_sharded(self, device: torch.device) -> bool:
        # With bf16 states every process would round its own copy of the weights differently.
        fits = device.type == "cuda" or self.state_precision == "bf16"
        return ((fits or self.sharding == "shard") and self.processes > 1) or self.casts_weights

    @property
    def casts_weights(self) -> bool:
        """True if FSDP2 makes bf16 copies of fp32 weights for each pass, also for one process."""
        return self.training.param_dtype == "bf16"

    @property
    def state_precision(self) -> Literal["fp32", "bf16"]:
        allowed = self.training.state_precision
        return (self.states or "fp32") if allowed == "fp32_or_bf16" else allowed

    @property
    def state_dtype(self) -> torch.dtype:
        return resolve_dtype(self.state_precision)

    @property
    def kept(self) -> str:
        """Value of `gradient_checkpointing`, with "none" (layers keep everything) for "auto"."""
        named = self.gradient_checkpointing
        return "none" if named == "auto" else named

    @property
    def micro_rows(self) -> int:
        """Maximum training rows in one forward pass of one process; at least 1."""
        return max(1, self.micro_batch_tokens // self.row_length)

    def identity(self) -> str:
        """Return a hash for resume points, without settings that only change memory use."""
        what = {"base_model", "method", "from_scratch", "seed", "num_steps", "row_length"}
        payload = self.model_dump(mode="json", include={*what, "target_context"})
        if self.train_positions != "exact":
            payload["train_positions"] = self.train_positions
        if self.data_seed is not None:
            payload["data_seed"] = self.data_seed
        return fingerprint({**payload, "training": self.training.identity()})
