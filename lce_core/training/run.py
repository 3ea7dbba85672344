"""Run training jobs: pretraining of the toy base model and fine-tuning with any method.

The loss is divided by the summed weight of all rows of a training step before the backward pass.
Any split into processes and micro-batches therefore computes the same gradient up to rounding,
except for models with dropout (phi2), which is drawn per pass and process.

AdamW applies weight decay to every parameter, norms included, as the papers' training code does.
"""

import gc
import sys
from pathlib import Path
from typing import Any

import torch

from lce_core.devices import memory_bytes, reproducible, resolve_device
from lce_core.errors import SpecError
from lce_core.progress import Report
from lce_core.training import launching
from lce_core.training.assembly import plugin_of
from lce_core.training.job import TrainingJob
from lce_core.training.memory import described, too_small, worth_trying
from lce_core.training.trainer import Trainer

MODULE = "lce_core.training.run"
"""The module's `__name__` is "__main__" in launched processes."""


def run(job: TrainingJob, report: Report) -> dict[str, Any]:
    """Train to the last step and save to `job.out`, continuing from the latest resume point if any.

    A run that is out of memory restarts with the next fallback. `report` receives {"step", "steps",
    "loss", "tokens_per_second"} about once a second. Returns `Trainer._facts` and the memory
    settings that failed, `out_of_memory`.
    """
    device = resolve_device(job.device)
    _check(job, device)
    base, capacity = plugin_of(job), memory_bytes(device)
    failed: list[str] = []
    for fallback in worth_trying(job, base, device, capacity):
        try:
            return {**_carry_out(fallback, device, report), "out_of_memory": failed}
        except torch.OutOfMemoryError as error:
            failed.append(f"{described(fallback)}: {str(error).splitlines()[0]}")
        # Collect outside the except clause: the exception's traceback keeps the trainer and its
        # tensors alive until the clause ends.
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    raise too_small(fallback, base, device, capacity, failed)


def _check(job: TrainingJob, device: torch.device) -> None:
    assert job.training.tokens_per_step % job.row_length == 0
    here = job.machines.processes_here
    if device.type == "cuda" and here > torch.cuda.device_count():
        raise SpecError(
            "execution.processes",
            f"{here}, but torch sees {torch.cuda.device_count()} GPUs",
            "at most one process per GPU",
            "lower execution.processes",
        )

    if job.machines.mixed_precision == "bf16" and job.training.precision == "fp32":
        raise SpecError(
            "accelerate_config: mixed_precision",
            "bf16, but the study trains in fp32",
            "the precision of the study",
            "set mixed_precision to 'no', or training.precision: bf16 in the study",
        )


def _carry_out(job: TrainingJob, device: torch.device, report: Report) -> dict[str, Any]:
    if job.processes == 1 and not job.casts_weights:
        return _train(job, device, report)
    job.resume.mkdir(parents=True, exist_ok=True)
    payload = job.model_dump_json()
    return launching.launch(MODULE, payload, job.machines, report, job.resume)


def _train(job: TrainingJob, device: torch.device, report: Report) -> dict[str, Any]:
    with reproducible(device, job.threads):
        return Trainer(job, device).train(report)


def _work(payload: str, report: Report) -> dict[str, Any]:
    job = TrainingJob.model_validate_json(payload)
    return _train(job, resolve_device(job.device), report)


if __name__ == "__main__":
    launching.work(Path(sys.argv[1]) if sys.argv[1:] else None, _work)
