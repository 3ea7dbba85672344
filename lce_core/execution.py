"""Settings for how a machine runs a study, read by the CLI and by every worker process.

Of a file of `accelerate config`, they contain the machines that share each training run. Sharding,
precision and compilation belong to the study and to lce's own settings, so a file that asks for
other ones is refused. Keys that concern neither are ignored.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from lce_core.errors import SpecError

_OTHERS = ("deepspeed_config", "megatron_lm_config", "parallelism_config", "dynamo_config")
"""Settings of Accelerate that lce refuses: sharding and compilation belong to the study and lce."""


class FsdpConfig(BaseModel):
    """Settings of FSDP in an Accelerate file, with the only values that `lce` uses."""

    model_config = ConfigDict(frozen=True)

    fsdp_version: Literal[2] = 2
    fsdp_reshard_after_forward: Literal[True] = True
    fsdp_offload_params: Literal[False] = False
    fsdp_activation_checkpointing: Literal[False] = False
    """The setting `gradient_checkpointing` of lce decides."""


class AccelerateConfig(BaseModel):
    """The keys of an Accelerate file that describe the machines of a training run."""

    model_config = ConfigDict(frozen=True)

    num_processes: int = Field(ge=1)
    """Processes of a training run on all machines together."""
    num_machines: int = Field(default=1, ge=1)
    """Machines that share each training run."""
    machine_rank: int = Field(default=0, ge=0)
    """Number of this machine; 0 is the main machine, on which `lce run` or `lce worker` runs."""
    main_process_ip: str | None = None
    """Address of the main machine."""
    main_process_port: int | None = Field(default=None, ge=1, le=65535)
    """Free port of the main machine, through which the processes find each other."""
    mixed_precision: Literal["no", "bf16"] | None = None
    """The study decides; bf16 is refused for a study that trains in fp32."""
    distributed_type: Literal["NO", "MULTI_CPU", "MULTI_GPU", "FSDP"] = "MULTI_GPU"
    rdzv_backend: Literal["static"] = "static"
    gpu_ids: Literal["all"] | None = None
    fsdp_config: FsdpConfig | None = None
    deepspeed_config: dict[str, Any] | None = Field(default=None, exclude=True)
    megatron_lm_config: dict[str, Any] | None = Field(default=None, exclude=True)
    parallelism_config: dict[str, Any] | None = Field(default=None, exclude=True)
    dynamo_config: dict[str, Any] | None = Field(default=None, exclude=True)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.num_processes % self.num_machines:
            raise SpecError(
                "num_processes",
                self.num_processes,
                f"a multiple of num_machines ({self.num_machines})",
                "give every machine as many processes",
            )
        if self.machine_rank >= self.num_machines:
            raise SpecError(
                "machine_rank",
                self.machine_rank,
                f"a number less than num_machines ({self.num_machines})",
                "number the machines from 0",
            )
        if self.num_machines > 1 and not (self.main_process_ip and self.main_process_port):
            raise SpecError(
                "main_process_ip, main_process_port",
                f"{self.main_process_ip}, {self.main_process_port}",
                "both, because several machines share a run",
                "give the main machine's address and a port that is free there",
            )
        for name in _OTHERS:
            if (value := getattr(self, name)) and value != {"dynamo_backend": "NO"}:
                raise SpecError(name, value, "none of these settings", "remove the key")
        return self

    @property
    def processes_here(self) -> int:
        return self.num_processes // self.num_machines


LOCAL = "local"
"""Value of `Execution.engine` that starts the workers on this machine."""


Checkpointing = Annotated[
    str,
    BeforeValidator(lambda given: ("none", "full")[given] if isinstance(given, bool) else given),
    Field(pattern=r"^(auto|none|attention(:[1-9]\d*)?|full|offload)$"),
]
"""Value of `gradient_checkpointing`, a name of `lce_core.training.recomputation` or "auto"."""


class Execution(BaseModel):
    """Settings of the machine that runs a study: folders, workers, devices and memory.

    Every record of a result contains these settings. No step's id depends on them.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    home: Path
    """LCE_HOME: folder of the store."""
    slots: int = Field(default=1, ge=1)
    """Maximum number of simultaneous steps on this host; usually one per GPU, or per CPU core."""
    training_slots: int | None = Field(default=None, ge=1)
    """Maximum number of simultaneous training runs; null means `slots`. Each process of a run uses
    one GPU."""
    evaluation_slots: int | None = Field(default=None, ge=1)
    """Maximum number of simultaneous steps other than training runs; null means `slots`. Each uses
    one GPU."""
    engine: str = LOCAL
    """Machines on which workers run. local: this machine. ray: the Ray cluster at $RAY_ADDRESS or,
    if it is not set, a Ray cluster on this machine. ray:HOST:PORT: the Ray cluster with this head
    node. With Ray, `slots` counts the simultaneous steps in the whole cluster."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device for training and evaluation; auto uses GPUs if torch finds any."""
    processes: int = Field(default=1, ge=1)
    """Processes of one training run on this machine (accelerate launch if more than one)."""
    accelerate_config: AccelerateConfig | None = None
    """File of `accelerate config`. With num_machines above 1, each training run uses `processes`
    GPUs of each machine; run `lce join` on the other machines."""
    threads: int = Field(default=1, ge=1)
    """CPU threads of each worker."""
    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Maximum number of tokens in one forward pass of one process. Evaluation in bf16 always
    processes one text at a time."""
    gradient_checkpointing: Checkpointing = "auto"
    """What the backward pass recomputes instead of keeping in memory. none: nothing. attention:
    everything except attention. attention:K, such as attention:24: everything except the attention
    of the first K layers. full: whole layers. offload: whole layers, whose inputs wait in host
    memory. auto: the first of these that fits, with the largest K; after an out-of-memory error the
    run tries the next. true means full, false means none. Results do not depend on the choice."""
    compile_layers: bool = True
    """Compile each decoder layer and the update of bf16 states with torch.compile when training on
    CUDA. gradient_checkpointing: offload compiles no layer."""
    token_graphs: bool = True
    """When a model generates text on CUDA, run each token's forward pass, except attention, as a
    CUDA graph."""
    checkpoint_seconds: float = Field(default=60.0, gt=0)
    """Minimum seconds between resume points of a training run. After the same time, but at most
    60 s, a cell saves its finished parts; other workers can help where it scores running text."""
    max_attempts: int = Field(default=3, ge=1)
    """Maximum attempts of a step whose failures may be temporary, such as a lost worker."""
    model_folders: dict[str, Path] = {}
    """Folders with weights and tokenizer, used instead of the hub. The key is a base model's name
    in the study, or the `checkpoint` of a method."""
    data_folders: dict[str, Path] = {}
    """Folders of data sets, or their addresses on the hub: hub:OWNER/NAME@COMMIT for files,
    datasets:OWNER/NAME@COMMIT:CONFIG:SPLIT for rows. The key is the data set's name."""
    plugin_folders: tuple[Path, ...] = ()
    """Folders with your own plug-ins in methods/, benchmarks/, models/ and corpora/."""

    @property
    def training_processes(self) -> int:
        machines = self.accelerate_config.num_machines if self.accelerate_config else 1
        return self.processes * machines

    @model_validator(mode="after")
    def _check_paths(self) -> Self:
        check_home(self.home)
        folders = {
            **{f"model_folders.{name}": path for name, path in self.model_folders.items()},
            **{f"data_folders.{name}": path for name, path in self.data_folders.items()},
            **{f"plugin_folders[{n}]": path for n, path in enumerate(self.plugin_folders)},
        }
        for where, path in folders.items():
            check_path(where, path)
        return self

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if not re.fullmatch(rf"{LOCAL}|ray(:[^/\s]+:\d+)?", self.engine):
            raise SpecError(
                "engine",
                repr(self.engine),
                f"{LOCAL}, ray or ray:HOST:PORT",
                "write the address of the Ray cluster's head node, or leave the address out",
            )
        return self


def check_home(home: Path) -> None:
    """Refuse a home whose path databases would read as another one.

    DuckDB takes a backslash for a slash, and ends the name of its log at a question mark.
    """
    check_path("LCE_HOME", home.absolute(), refused="?\\")


def check_path(where: str, path: Path, refused: str = "") -> None:
    """Refuse characters of `refused` and paths that records cannot store as UTF-8."""
    text = str(path)
    bad = [repr(one) for one in text if one in refused]
    bad += [f"byte 0x{ord(one) - 0xDC00:02x}" for one in text if 0xDC80 <= ord(one) <= 0xDCFF]
    if bad:
        without = f" without {' and '.join(map(repr, refused))}" if refused else ""
        raise SpecError(
            where,
            f"{text!r}, a path with {bad[0]}",
            f"a path in UTF-8{without}",
            "rename the folder or file, or choose another",
        )
