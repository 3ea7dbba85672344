"""How a study is carried out on this machine; recorded beside results, part of no identity."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from lce_core.errors import SpecError

LOCAL = "local"
"""The engine of one machine."""


def _spelled_out(given: object) -> object:
    return {True: "full", False: "none"}[given] if isinstance(given, bool) else given


Checkpointing = Annotated[
    Literal["auto", "none", "attention", "full", "offload"], BeforeValidator(_spelled_out)
]


class Execution(BaseModel):
    """How a study is carried out here; recorded, never part of any id."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path
    """LCE_HOME: where the store lies."""
    slots: int = Field(default=1, ge=1)
    """Steps at the same time on this host: one per GPU, or one per CPU core."""
    training_slots: int | None = Field(default=None, ge=1)
    """Training runs at the same time, if not `slots`; each takes a GPU a process."""
    evaluation_slots: int | None = Field(default=None, ge=1)
    """Steps of any other kind at the same time, if not `slots`; each takes one GPU."""
    engine: str = LOCAL
    """Where workers are: local, on this machine; ray, on the nodes of the Ray cluster at
    $RAY_ADDRESS or else of this machine's; ray:HOST:PORT, of that one. Slots are the cluster's."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    processes: int = Field(default=1, ge=1)
    """Processes of one training run (accelerate launch when more than one)."""
    threads: int = Field(default=1, ge=1)
    """CPU threads of each worker."""
    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Upper limit of tokens in one forward pass of one process; evaluation in bf16 passes one text
    at a time."""
    gradient_checkpointing: Checkpointing = "auto"
    """What layers keep for the backward pass (`lce_core.training.recomputation`): none recomputes
    nothing; attention all but attention; full all; offload all, with the layers' inputs in the
    host's memory. The numbers stay the same. auto takes the first that fits, and so does a run
    that is out of memory. true is full, false is none."""
    compile_layers: bool = False
    """Compile each layer with torch.compile when training on CUDA."""
    token_graphs: bool = False
    """Replay a generated token's pass from CUDA graphs, but for its attention."""
    checkpoint_seconds: float = Field(default=60.0, gt=0)
    """Time between resume points of a training run. A cell over running text that takes longer, or
    longer than a minute, commits its losses range by range."""
    max_attempts: int = Field(default=3, ge=1)
    """Attempts of a step whose failures may pass."""
    model_folders: dict[str, Path] = {}
    """Folder of a base model's weights and tokenizer, by registered name, instead of the hub."""
    data_folders: dict[str, Path] = {}
    """Folder of a data set, by name; or hub:OWNER/NAME@COMMIT."""
    plugin_folders: tuple[Path, ...] = ()
    """Folders with methods/, benchmarks/, models/, corpora/ of one's own."""

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if not re.fullmatch(rf"{LOCAL}|ray(:[^/\s]+:\d+)?", self.engine):
            raise SpecError(
                "engine",
                repr(self.engine),
                f"{LOCAL}, ray or ray:HOST:PORT",
                "name the head of a Ray cluster as `ray status` does, or leave the address out",
            )
        return self
