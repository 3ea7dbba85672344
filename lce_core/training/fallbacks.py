"""Fallbacks of a training run that is out of memory, cheapest first.

1. Fewer rows per forward pass, down to one. This costs almost nothing for long rows.

2. Layers keep fewer activations for the backward pass: first "attention", then attention in some
layers, then "full", then "offload" (`lce_core.training.recomputation`).

3. Weights, gradients and moments in bf16 from the first step on, if the study allows fp32 and bf16.

1 and 2 change only the order of summation and, with dropout, which activations are dropped. On a
GPU the run starts with the first fallback whose estimated memory fits, because each failed attempt
costs a restart; the estimate also chooses the number of layers that keep attention, which a failed
attempt halves. A `gradient_checkpointing` other than "auto" is used exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.training.memory import USABLE_FRACTION, Memory, estimate
from lce_core.training.recomputation import every_kept

if TYPE_CHECKING:
    from lce_core.models import LanguageModel
    from lce_core.training.job import TrainingJob


def all_fallbacks(job: TrainingJob, num_layers: int) -> list[TrainingJob]:
    """Return the job and copies of it with one more fallback each."""
    found = [job.model_copy(update={"gradient_checkpointing": job.kept})]
    while found[-1].micro_rows > 1:
        fewer = found[-1].micro_rows // 2 * job.row_length
        found.append(found[-1].model_copy(update={"micro_batch_tokens": fewer}))
    kept = every_kept(num_layers)
    # All layers may be named as "attention:K" too.
    present = job.kept if job.kept in kept else "attention"
    for name in kept[kept.index(present) + 1 :]:
        found.append(found[-1].model_copy(update={"gradient_checkpointing": name}))
    if job.training.state_precision == "fp32_or_bf16" and job.state_precision == "fp32":
        # bf16 states need half the memory, so layers may again keep more than in the last fp32
        # fallback. The two precisions have separate resume folders because a run may not change its
        # precision midway: the precision in its record must hold for all steps.
        bf16 = {"states": "bf16", "resume": job.resume / "bf16"}
        found += [one.model_copy(update=bf16) for one in found if one.micro_rows == 1]
    return found


def worth_trying(
    job: TrainingJob, base: LanguageModel, device: torch.device, capacity: int | None
) -> Sequence[TrainingJob]:
    """Return the job, or copies of it that need less memory, in the order in which to try them.

    The list starts with the first job whose estimated memory fits `capacity` bytes; if none fits,
    it contains only the last fallback. If the memory is unknown, or `gradient_checkpointing` is not
    "auto", the list starts with `job` itself.
    """
    found = all_fallbacks(job, base.shape.num_layers)
    half = f"attention:{base.shape.num_layers // 2}"
    named = [one for one in found if ":" not in one.kept or one.kept in (job.kept, half)]
    if capacity is None:
        return named
    needs = [need(one, base, device) for one in found]
    if min(memory.states + memory.context for memory in needs) > capacity:
        raise too_small(found[-1], base, device, capacity, ())
    if job.gradient_checkpointing != "auto":
        return named
    fits = (
        place for place, memory in enumerate(needs) if memory.total <= USABLE_FRACTION * capacity
    )
    first = next(fits, len(found) - 1)
    return [found[first], *(one for one in found[first + 1 :] if one in named)]


def need(job: TrainingJob, base: LanguageModel, device: torch.device) -> Memory:
    """Estimate the bytes of device memory that one process of a job needs, by purpose."""
    method = None if job.method is None else METHODS.from_identity(job.method)
    return estimate(job, base, method, sharded=job.is_sharded(device))


def described(job: TrainingJob) -> str:
    """Return a text such as "2 rows a pass, gradient_checkpointing full, fp32 states"."""
    rows = "1 row" if job.micro_rows == 1 else f"{job.micro_rows} rows"
    return f"{rows} a pass, gradient_checkpointing {job.kept}, {job.state_precision} states"


def too_small(
    job: TrainingJob,
    base: LanguageModel,
    device: torch.device,
    capacity: int | None,
    failed: Sequence[str],
) -> SpecError:
    """Return the error for a run that is out of memory even with its last fallback.

    `failed` are the settings that were tried, each with torch's message.
    """
    has = "an unknown amount" if capacity is None else f"{capacity / 1e9:.1f} GB"
    tried = f" (out of memory: {'; '.join(failed)})" if failed else ""
    bf16 = job.state_precision == "fp32" and job.training.precision == "bf16"
    return SpecError(
        "device memory",
        f"{has} on each of {job.processes} {device.type} device(s){tried}",
        f"about {need(job, base, device)}, with {described(job)}",
        "raise execution.processes" + (", or set state_precision: bf16 in the study" * bf16),
    )
