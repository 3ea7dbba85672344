"""Save and restore the state of a training run: weights, optimiser moments and the EMA.

Data order, learning rate and dropout are functions of the step (`lce_core.training.schedule`), so a
resume point does not contain them. Each process saves and restores its own rows of sharded tensors,
one tensor at a time; the main process also tensors that are not sharded.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from lce_core.training.checkpoints.points import WholeTensors
from lce_core.training.sharding import local, local_rows
from lce_core.training.states.adamw import RoundedAdamW


def training_tensors(
    parameters: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    ema: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Return tensors as "weights/...", "optimizer/..." (moments, steps) or "average/..." (EMA)."""
    tensors = {f"weights/{name}": tensor.detach() for name, tensor in parameters.items()}
    for name, tensor in parameters.items():
        for key, value in optimizer.state[tensor].items():
            tensors[f"optimizer/{key}/{name}"] = value
    for name, tensor in ema.items():
        tensors[f"average/{name}"] = tensor
    return tensors


def shard_tensors(tensors: Mapping[str, Tensor], *, is_main: bool) -> dict[str, Tensor]:
    """Return this process's rows of sharded tensors and, on the main process, all others."""
    return {
        name: local(tensor)
        for name, tensor in tensors.items()
        if is_main or isinstance(tensor, DTensor)
    }


@torch.no_grad()
def restore(
    saved: WholeTensors,
    parameters: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    ema: Mapping[str, Tensor],
) -> None:
    """Copy a resume point's tensors into parameters, optimiser and EMA."""
    for name, parameter in parameters.items():
        _fill(parameter, saved, f"weights/{name}")
    for name, tensor in ema.items():
        _fill(tensor, saved, f"average/{name}")
    for place in saved.names:
        kind, _, rest = place.partition("/")
        if kind != "optimizer":
            continue
        key, _, name = rest.partition("/")
        parameter = parameters[name]
        if key == "step":
            # RoundedAdamW reads the step count on the host. A count on the GPU would force a
            # synchronisation at every update.
            on_host = isinstance(optimizer, RoundedAdamW)
            value = saved.scalar(place).to("cpu" if on_host else parameter.device)
        else:
            value = torch.empty_like(parameter)
            _fill(value, saved, place)
        optimizer.state[parameter][key] = value


def _fill(tensor: Tensor, saved: WholeTensors, name: str) -> None:
    part = local(tensor)
    if part.numel():
        part.copy_(saved.rows(name, local_rows(tensor)))
