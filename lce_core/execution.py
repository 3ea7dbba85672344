"""How a study is carried out on this machine; recorded beside results, part of no identity."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


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
    """Upper limit of tokens in one forward pass of one process; evaluation in bf16 passes one text
    at a time."""
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
