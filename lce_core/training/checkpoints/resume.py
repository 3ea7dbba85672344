"""What an interrupted training run goes on from: weights, optimiser moments and the EMA.

Order of data, learning rate and dropout are functions of the step (`lce_core.training.schedule`),
so there is nothing else to save. Each process saves and restores its own rows of split tensors
(`lce_core.training.sharding`), one tensor at a time; whole ones are saved by the main process.
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
    ema: Mapping[str, Tensor] | None,
) -> dict[str, Tensor]:
    """Everything a run carries from step to step, under names that tell the three kinds apart."""
    tensors = {f"weights/{name}": tensor.detach() for name, tensor in parameters.items()}
    for name, tensor in parameters.items():
        for key, value in optimizer.state[tensor].items():
            tensors[f"optimizer/{key}/{name}"] = value
    for name, tensor in (ema or {}).items():
        tensors[f"average/{name}"] = tensor
    return tensors


def shard_tensors(tensors: Mapping[str, Tensor], *, is_main: bool) -> dict[str, Tensor]:
    """What this process writes of `training_tensors`: its rows, and on the main one the rest."""
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
    ema: Mapping[str, Tensor] | None,
) -> None:
    """Inverse of `training_tensors`, into freshly built parts of the same shapes."""
    for name, parameter in parameters.items():
        _fill(parameter, saved, f"weights/{name}")
    for name, tensor in (ema or {}).items():
        _fill(tensor, saved, f"average/{name}")
    for place in saved.names:
        kind, _, rest = place.partition("/")
        if kind != "optimizer":
            continue
        key, _, name = rest.partition("/")
        parameter = parameters[name]
        if key == "step":
            # Where ours counts on the host, a count on the GPU would be waited for at each update.
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
