"""The one training loop: pretraining of the toy base and fine-tuning with any method.

Built on Accelerate. A step is one update on `tokens_per_step` tokens, whatever the number of
processes and micro-batches: the loss is divided by the weight sum of the whole step's rows before
it is differentiated, so 1 x 8, 8 x 1 and N processes compute the same gradient up to rounding.
Learning rate, rows and dropout are functions of the step, which makes a resumed run equal to an
undisturbed one, bit for bit on a CPU.

Several processes hold whole copies of the model ("replicate") or a share of it each ("shard",
`lce_core.training.sharding`); the arithmetic is the same.

AdamW decays every parameter alike, norms included, as the papers' training code does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from lce_core.devices import reproducible, resolve_device
from lce_core.errors import SpecError
from lce_core.reports import Report
from lce_core.training import launching
from lce_core.training.job import TrainingJob
from lce_core.training.trainer import Trainer


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
            "correct the study",
        )
    device = resolve_device(job.device)
    if job.processes == 1:
        with reproducible(device, job.threads):
            return Trainer(job, device).train(report)
    if device.type == "cuda" and job.processes > torch.cuda.device_count():
        raise SpecError(
            "execution.processes",
            f"{job.processes}, but torch sees {torch.cuda.device_count()} GPUs",
            "at most one process a GPU",
            "lower processes",
        )
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
