"""What a training run that is out of memory does next, in order of what it costs.

1. fewer rows in a pass, down to one: as good as free for long rows;
2. layers keep less (`lce_core.training.recomputation`): attention, full, offload;
3. states in bf16, where the study allows either, from the first step on.

All but the last change nothing but the order of sums, and, with fewer rows in a pass, what dropout
drops, where a model has it. On a GPU the first rung is the first that an
estimate says will do, unless the execution names what layers keep: every rung that fails costs a
start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import torch

from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.training.memory import SHARE, Memory, estimate
from lce_core.training.recomputation import Kept

if TYPE_CHECKING:
    from lce_core.models import LanguageModel
    from lce_core.training.job import TrainingJob


def all_rungs(job: TrainingJob) -> list[TrainingJob]:
    """The job as it is, and then with ever less memory."""
    found = [job.model_copy(update={"gradient_checkpointing": job.kept})]
    while found[-1].micro_rows > 1:
        fewer = found[-1].micro_rows // 2 * job.row_length
        found.append(found[-1].model_copy(update={"micro_batch_tokens": fewer}))
    kept = get_args(Kept)
    for name in kept[kept.index(job.kept) + 1 :]:
        found.append(found[-1].model_copy(update={"gradient_checkpointing": name}))
    if job.training.state_precision == "fp32_or_bf16" and job.state_precision == "fp32":
        # Half the states leave room again, so layers may keep more than at the rung before.
        # Either precision has resume points of its own: what the record names holds for all steps.
        single = [
            rung.model_copy(update={"states": "bf16", "resume": job.resume / "bf16"})
            for rung in found
        ]
        found += [rung for rung in single if rung.micro_rows == 1]
    return found


def rungs(
    job: TrainingJob, base: LanguageModel, device: torch.device, capacity: int | None
) -> Sequence[TrainingJob]:
    """The rungs that are worth trying on a device, in order.

    Args:
      job: what is to be trained.
      base: its base model.
      device: of each process.
      capacity: its memory in bytes; None if nobody knows.

    Raises:
      SpecError: its states alone do not fit, whatever layers keep.
    """
    found = all_rungs(job)
    if capacity is None:
        return found
    needs = [need(rung, base, device) for rung in found]
    if min(memory.states + memory.context for memory in needs) > capacity:
        raise too_small(found[-1], base, device, capacity, ())
    if job.gradient_checkpointing != "auto":
        return found
    fits = (place for place, memory in enumerate(needs) if memory.total <= SHARE * capacity)
    return found[next(fits, len(found) - 1) :]


def need(job: TrainingJob, base: LanguageModel, device: torch.device) -> Memory:
    """The estimate for a job on a device."""
    method = None if job.method is None else METHODS.from_identity(job.method)
    lora = method.lora() if method else None
    return estimate(job, base, sharded=job.is_sharded(device), lora=lora)


def described(job: TrainingJob) -> str:
    """A rung in words."""
    rows = "1 row" if job.micro_rows == 1 else f"{job.micro_rows} rows"
    return f"{rows} a pass, gradient_checkpointing {job.kept}, {job.state_precision} states"


def too_small(
    job: TrainingJob,
    base: LanguageModel,
    device: torch.device,
    capacity: int | None,
    wanting: Sequence[str],
) -> SpecError:
    """The error of a run whose last rung is too much for its devices."""
    has = "an unknown amount" if capacity is None else f"{capacity / 1e9:.1f} GB"
    tried = f" (out of memory: {'; '.join(wanting)})" if wanting else ""
    bf16 = job.state_precision == "fp32" and job.training.precision == "bf16"
    return SpecError(
        "device memory",
        f"{has} on each of {job.processes} {device.type} device(s){tried}",
        f"about {need(job, base, device)}, with {described(job)}",
        "raise processes, or set state_precision: bf16 in the study" if bf16 else "raise processes",
    )
