"""The one training loop: pretraining of the toy base and fine-tuning with any method.

Built on Accelerate. A step is one update on `tokens_per_step` tokens, whatever the number of
processes and micro-batches: the loss is divided by the weight sum of the whole step's rows before
it is differentiated, so 1 x 8, 8 x 1 and N processes compute the same gradient up to rounding. Of
models with dropout (phi2) that holds for one division into passes only: what is dropped is drawn
pass by pass, on each process.
Learning rate, rows and dropout are functions of the step, which makes a resumed run equal to an
undisturbed one, bit for bit on a CPU.

Several processes hold whole copies of the model ("replicate") or a share of it each ("shard",
`lce_core.training.sharding`); the arithmetic is the same.

AdamW decays every parameter alike, norms included, as the papers' training code does.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import torch

from lce_core.devices import memory_bytes, reproducible, resolve_device
from lce_core.errors import SpecError
from lce_core.reports import Report
from lce_core.training import launching
from lce_core.training.assembly import plugin_of
from lce_core.training.job import TrainingJob
from lce_core.training.ladder import described, rungs, too_small
from lce_core.training.trainer import Trainer


def run(job: TrainingJob, report: Report) -> dict[str, Any]:
    """Trains to the end, from the resume point if there is one; `out` then holds the checkpoint.

    A run that is out of memory goes on with less (`lce_core.training.ladder`).

    Args:
      job: what to train, and how.
      report: gets {"step", "steps", "loss", "tokens_per_second"} about once a second.

    Returns:
      JSON-able facts: the last entry of the log (`lce_core.training.telemetry`), kernel,
      resumed_from, seconds, device, processes, how the device's memory was used and what it was
      too small for; peak_memory_bytes is that of all steps.

    Raises:
      SpecError: the job contradicts itself or this machine, whose memory may not suffice.
      DataError: rows that cannot be trained on.
      NonFiniteError: the loss or a gradient is NaN or infinite; nothing is saved.
      StoreError: the resume folder belongs to another run.
    """
    device = resolve_device(job.device)
    _check(job, device)
    base, capacity = plugin_of(job), memory_bytes(device)
    wanting: list[str] = []
    for rung in rungs(job, base, device, capacity):
        try:
            return {**_carry_out(rung, device, report), "out_of_memory": wanting}
        except torch.OutOfMemoryError as error:
            wanting.append(f"{described(rung)}: {str(error).splitlines()[0]}")
        # Outside the clause, where the error and with it the trainer's frames are gone.
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    raise too_small(rung, base, device, capacity, wanting)


def _check(job: TrainingJob, device: torch.device) -> None:
    if job.training.tokens_per_step % job.row_length:
        raise SpecError(
            "training.tokens_per_step",
            job.training.tokens_per_step,
            f"a multiple of the row length, {job.row_length} tokens",
            "correct the study",
        )
    if job.state_precision == "bf16" and job.sharding == "replicate":
        raise SpecError(
            "sharding",
            "replicate with state_precision bf16",
            "one rounding of each weight, not one for each copy",
            "use sharding auto or shard",
        )
    if device.type == "cuda" and job.processes > torch.cuda.device_count():
        raise SpecError(
            "execution.processes",
            f"{job.processes}, but torch sees {torch.cuda.device_count()} GPUs",
            "at most one process a GPU",
            "lower processes",
        )


def _carry_out(job: TrainingJob, device: torch.device, report: Report) -> dict[str, Any]:
    if job.processes == 1:
        with reproducible(device, job.threads):
            return Trainer(job, device).train(report)
    job.resume.mkdir(parents=True, exist_ok=True)
    payload = job.model_dump_json()
    return launching.launch("lce_core.training.run", payload, job.processes, report, job.resume)


def _work(payload: str, report: Report) -> dict[str, Any]:
    """One process of a launched run."""
    job = TrainingJob.model_validate_json(payload)
    device = resolve_device(job.device)
    with reproducible(device, job.threads):
        return Trainer(job, device).train(report)


if __name__ == "__main__":
    launching.work(Path(sys.argv[1]), _work)
