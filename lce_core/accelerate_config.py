"""Content of a file of `accelerate config`: the machines that share each training run.

Sharding, precision and compilation belong to the study and to lce's own settings, so a file that
asks for other ones is refused. Keys that concern neither are ignored.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lce_core.errors import SpecError


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
        for name in (
            "deepspeed_config",
            "megatron_lm_config",
            "parallelism_config",
            "dynamo_config",
        ):
            if (value := getattr(self, name)) and value != {"dynamo_backend": "NO"}:
                raise SpecError(name, value, "none of these settings", "remove the key")
        return self

    @property
    def processes_here(self) -> int:
        return self.num_processes // self.num_machines
