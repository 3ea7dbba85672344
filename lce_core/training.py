"""The one training loop: pretraining of the toy base and fine-tuning with any method.

Built on Accelerate. A step is one update on `tokens_per_step` tokens, whatever the number of
processes and micro-batches: the loss is divided by the weight sum of the whole step's rows before
it is differentiated, so 1 x 8, 8 x 1 and N processes compute the same gradient up to rounding.
Learning rate, rows and dropout are functions of the step, which makes a resumed run equal to an
undisturbed one, bit for bit on a CPU.

Several processes hold whole copies of the model ("replicate") or a share of it each ("shard",
`lce_core.sharding`); the arithmetic is the same.

AdamW decays every parameter alike, norms included, as the papers' training code does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from lce_core import launching
from lce_core.devices import DeviceName, reproducible, resolve_device
from lce_core.errors import SpecError
from lce_core.identity import fingerprint
from lce_core.spec import Training
from lce_core.trainer import Report, Trainer


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
    gradient_checkpointing: bool = False
    plugin_folders: tuple[Path, ...] = ()

    @property
    def rows_per_step(self) -> int:
        """Rows of one update over all processes and micro-batches."""
        return self.training.tokens_per_step // self.row_length

    def is_sharded(self, device: torch.device) -> bool:
        """Whether each process holds a share of the model only."""
        wanted = self.sharding == "shard" or (self.sharding == "auto" and device.type == "cuda")
        return wanted and self.processes > 1

    def identity(self) -> str:
        """Fingerprint of what decides the result; resume points of another one are refused."""
        what = {"base_model", "method", "from_scratch", "seed", "num_steps", "row_length"}
        payload = self.model_dump(mode="json", include={*what, "target_context"})
        return fingerprint({**payload, "training": self.training.identity()})


def run(job: TrainingJob, report: Report) -> dict[str, Any]:
    """Trains to the end, from the resume point if there is one; `out` then holds the checkpoint.

    Args:
      job: what to train, and how.
      report: gets {"step", "steps", "loss", "tokens_per_second"} about once a second.

    Returns:
      JSON-able facts: step, tokens, loss, kernel, resumed_from, seconds, device, processes, mfu.

    Raises:
      SpecError: the job contradicts itself or this machine.
      DataError: rows that cannot be trained on.
      NonFiniteError: the loss or a gradient is NaN or infinite; nothing is saved.
      StoreError: the resume folder belongs to another run.
      torch.OutOfMemoryError: the micro-batch does not fit the device.
    """
    if job.training.tokens_per_step % job.row_length:
        raise SpecError(
            "training.tokens_per_step",
            job.training.tokens_per_step,
            f"a multiple of the row length, {job.row_length} tokens",
            "Correct the study.",
        )
    device = resolve_device(job.device)
    if job.processes == 1:
        with reproducible(device, job.threads):
            return Trainer(job, device).train(report)
    if device.type == "cuda" and job.processes > torch.cuda.device_count():
        raise SpecError(
            "execution.processes",
            job.processes,
            f"at most one process a GPU; {torch.cuda.device_count()} here",
            "Lower processes.",
        )
    job.resume.mkdir(parents=True, exist_ok=True)
    payload = job.model_dump_json()
    return launching.launch("lce_core.training", payload, job.processes, report, job.resume)


def _work(payload: str, report: Report) -> dict[str, Any]:
    """One process of a launched run."""
    job = TrainingJob.model_validate_json(payload)
    device = resolve_device(job.device)
    with reproducible(device, job.threads):
        return Trainer(job, device).train(report)


if __name__ == "__main__":
    launching.work(Path(sys.argv[1]), _work)
