"""Measure parts of a training step: attention kernels, and updates of bf16 states.

Kernels: forward and backward pass of the causal attention of one layer, with each kernel that is
installed. The FLOPs are those of the visible half of the scores, 2 x tokens^2 x hidden size, and
2.5 times as many in the backward pass. Updates: the optimizer, and the sum of the gradients of
two passes, on a model of one layer; the time for all layers is proportional to the parameters.

    python perf/gpu_layer.py --lengths 32768 --rows FILE.jsonl
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from gpu_common import Measurement, SkippedError, first_line, random_llama, section
from gpu_training import random_job
from measuring import timed
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from lce_core.devices import resolve_device
from lce_core.models import LanguageModel
from lce_core.study.cost import num_parameters
from lce_core.training.trainer import Trainer

REPEATS = 3
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Causal attention of queries, keys and values (tokens, heads, head_dim); the output has the same
shape."""


def measurements(options: Namespace) -> Iterator[Measurement]:
    base = random_llama(options.shape, layers=1)
    for length in options.lengths:
        for name, attend in KERNELS.items():
            row = {"what": "kernel", "kernel": name, "length": length}
            yield row, partial(attention, base, attend, length)
    for part, measure in (("optimizer", optimizer), ("gradient sums", gradient_sums)):
        yield {"what": "update", "part": part}, partial(measure, options.shape)


def attention(base: LanguageModel, attend: Attend, length: int) -> dict[str, Any]:
    """Return time and FLOP/s of a forward and backward pass, the best of three."""
    geometry = base.geometry
    shape = (4, length, geometry.num_heads, geometry.head_dim)
    states = torch.randn(shape, dtype=torch.bfloat16, device=resolve_device("auto"))
    inputs = [part.requires_grad_() for part in states[:3].unbind()]

    def both_passes() -> None:
        torch.autograd.grad(attend(*inputs), inputs, states[3])

    try:
        both_passes()
    except (ImportError, RuntimeError) as error:  # also NotImplementedError
        known = "No available kernel", "No viable backend"
        if type(error) is RuntimeError and not any(text in str(error) for text in known):
            raise
        raise SkippedError(first_line(error)) from error
    seconds = min(timed(both_passes).wall for _ in range(REPEATS))
    flops = 3.5 * 2 * length**2 * geometry.num_heads * geometry.head_dim
    return {"milliseconds": round(1000 * seconds, 3), "teraflops": flops / seconds / 1e12}


def sdpa(
    backend: SDPBackend, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    with sdpa_kernel(backend):
        states = (part.transpose(0, 1)[None] for part in (query, key, value))
        return scaled_dot_product_attention(*states, is_causal=True)[0].transpose(0, 1)


def flash_attn(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    from flash_attn import flash_attn_func

    return flash_attn_func(query[None], key[None], value[None], causal=True)[0]


def varlen(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    length = len(query)
    ends = torch.tensor([0, length], dtype=torch.int32, device=query.device)
    # This window is causal attention.
    return varlen_attn(query, key, value, ends, ends, length, length, window_size=(-1, 0))


KERNELS: dict[str, Attend] = {
    "SDPA, flash": partial(sdpa, SDPBackend.FLASH_ATTENTION),
    "SDPA, cuDNN": partial(sdpa, SDPBackend.CUDNN_ATTENTION),
    "flash-attn package": flash_attn,
    "torch varlen_attn": varlen,
}


def optimizer(shape: str) -> dict[str, Any]:
    """Return the time of clipping and one AdamW update."""
    trainer = trainer_of(shape)
    for parameter in trainer.parameters.values():
        parameter.grad = torch.randn_like(parameter)
    adamw: Any = trainer.optimizer.optimizer

    def update() -> None:
        adamw.clip(1.0, lambda norm: norm)
        adamw.step()

    update()  # creates the moments
    return update_row(min(timed(update).wall for _ in range(REPEATS)), trainer, shape)


def gradient_sums(shape: str) -> dict[str, Any]:
    """Return the time of adding the gradients of a second pass to those of the first."""
    trainer = trainer_of(shape)
    sums: Any = trainer.sums

    def one_pass() -> None:
        loss: Any = sum(parameter.sum() for parameter in trainer.parameters.values())
        loss.backward()

    def seconds() -> float:
        sums.begin(0)
        first = timed(one_pass).wall  # only stores its gradients
        return timed(one_pass).wall - first

    seconds()
    return update_row(min(seconds() for _ in range(REPEATS)), trainer, shape)


def trainer_of(shape: str) -> Trainer:
    """Return the trainer of a model of one layer, which sums the gradients of two passes."""
    row = Namespace(method="none", rows_per_step=2)
    with random_job(random_llama(shape, layers=1), row, 64) as job:
        return Trainer(job, resolve_device("auto"))


def update_row(seconds: float, trainer: Trainer, shape: str) -> dict[str, Any]:
    number = sum(parameter.numel() for parameter in trainer.parameters.values())
    whole = num_parameters(random_llama(shape))
    return {
        "parameters": number,
        "milliseconds": round(1000 * seconds, 3),
        "milliseconds_of_whole_model": round(1000 * seconds * whole / number, 3),
    }


if __name__ == "__main__":
    sys.exit(section(__doc__, measurements))
