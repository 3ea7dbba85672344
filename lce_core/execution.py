"""Execution settings of a study on this machine: recorded with results, not part of any id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from lce_core.errors import SpecError

LOCAL = "local"
"""Value of `engine` for workers on this machine."""


def _spelled_out(given: object) -> object:
    return {True: "full", False: "none"}[given] if isinstance(given, bool) else given


Checkpointing = Annotated[
    Literal["auto", "none", "attention", "full", "offload"], BeforeValidator(_spelled_out)
]


class Execution(BaseModel):
    """Execution settings of a study on this machine; recorded, never part of an id."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    home: Path
    """LCE_HOME: folder of the store."""
    slots: int = Field(default=1, ge=1)
    """Number of simultaneous steps on this host: one per GPU, or one per CPU core."""
    training_slots: int | None = Field(default=None, ge=1)
    """Number of simultaneous training runs, if not `slots`; each process takes one GPU."""
    evaluation_slots: int | None = Field(default=None, ge=1)
    """Number of simultaneous steps of other kinds, if not `slots`; each takes one GPU."""
    engine: str = LOCAL
    """Location of the workers. local: this machine. ray: nodes of the Ray cluster at $RAY_ADDRESS,
    or of this machine's cluster. ray:HOST:PORT: nodes of that cluster. With Ray, slots count for
    the whole cluster."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of training and evaluation; auto uses the GPUs if there are any."""
    processes: int = Field(default=1, ge=1)
    """Processes of one training run (accelerate launch if more than one)."""
    threads: int = Field(default=1, ge=1)
    """CPU threads of each worker."""
    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Maximum tokens in one forward pass of one process; evaluation in bf16 passes one text at a
    time."""
    gradient_checkpointing: Checkpointing = "auto"
    """What layers keep for the backward pass (`lce_core.training.recomputation`). none recomputes
    nothing; attention recomputes everything except attention; full recomputes the whole layer;
    offload does too and keeps the layers' inputs in host memory. The numbers stay the same. auto
    uses the first that fits, and a run that is out of memory tries the next. true means full, false
    means none."""
    compile_layers: bool = False
    """Compile each layer with torch.compile when training on CUDA."""
    token_graphs: bool = False
    """Replay the passes of generated tokens, without their attention, from CUDA graphs."""
    checkpoint_seconds: float = Field(default=60.0, gt=0)
    """Seconds between resume points of a training run. A cell over running text that takes longer
    than this, or longer than a minute, commits its losses range by range."""
    max_attempts: int = Field(default=3, ge=1)
    """Attempts of a step whose failures may be temporary."""
    model_folders: dict[str, Path] = {}
    """Folder of a base model's weights and tokenizer, by registered name, used instead of the hub.
    """
    data_folders: dict[str, Path] = {}
    """Folder of a data set by name, or hub:OWNER/NAME@COMMIT."""
    plugin_folders: tuple[Path, ...] = ()
    """Folders with your own methods/, benchmarks/, models/ and corpora/."""

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
