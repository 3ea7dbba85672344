"""Shard a model over the processes of a run: each process holds some rows of every weight.

Embedding, last norm and head stay gathered from the forward to the backward pass, because the loss
reads them directly. Gradients are reduced in fp32, so N processes compute the same as one, up to
the order of summation.

Only the main process reads the weights. The decoder layers, and last the rest of the model, are
broadcast and sharded one after another, so each device holds at most its shard and one whole layer.

Accelerate's FSDP plugin (1.15) cannot do this: it does not shard on a CPU, and maps the optimiser's
parameters by `data_ptr()`, which is 0 for every weight on the meta device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from accelerate import init_empty_weights  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from lce_core.attention.rotary import RequestRotary
from lce_core.errors import DataError
from lce_core.rope.architectures import ARCHITECTURES

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def build_on_main(
    build: Callable[[], PreTrainedModel], device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    """Call `build` on the main process; build the same model without weights on the others."""
    if dist.get_rank() == 0:
        model = build()
        _broadcast_text(model.config.to_json_string(use_diff=False), device)
        _broadcast_text(_layout(model), device)
        return model
    from transformers import AutoConfig, AutoModelForCausalLM

    settings: dict[str, Any] = json.loads(_broadcast_text("", device))
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    architecture = ARCHITECTURES[config.model_type]
    # Buffers get real memory: every process computes the rotary frequencies from the configuration,
    # and they are not broadcast.
    with init_empty_weights(include_buffers=False):
        empty: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=architecture.stock_attention
        )
    # Building on the meta device unties the weights.
    empty.tie_weights()
    if (found := _layout(empty)) != (wanted := _broadcast_text("", device)):
        # Processes with different layouts would broadcast different tensors and wait for each other
        # forever.
        here, there = _first_difference(json.loads(found), json.loads(wanted))
        raise DataError(
            "base model",
            f"{here} in the model built from the configuration, but {there} in the loaded model",
            "the same names and shapes of weights in both",
            "make the plug-in's config() include all settings that its weights depend on",
        )
    return empty


def shard(
    module: nn.Module,
    model: PreTrainedModel,
    device: torch.device,
    param_dtype: torch.dtype | None = None,
) -> None:
    """Shard `module`, which contains `model`, in place; gather decoder layers in `param_dtype`."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    # Inputs are not cast: token weights and positions need fp32, and hidden states follow the
    # embedding's dtype.
    sums = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
    cast = replace(sums, param_dtype=param_dtype)
    exact: list[nn.Module] = []
    for part in model.modules():
        # `fully_shard` needs one dtype per call.
        others = any(own.dtype != model.dtype for own in part.parameters(recurse=False))
        # Trained frequencies are never gathered in bf16.
        trained = isinstance(part, RequestRotary) and any(True for _ in part.parameters())
        if others if param_dtype is None else trained:
            exact.append(part)
    for units, policy in ((exact, sums), (decoder_layers(model), cast)):
        for unit in units:
            _broadcast_weights(unit, device)
            fully_shard(unit, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
    _broadcast_weights(module, device)
    fully_shard(module, mesh=mesh, mp_policy=cast)


def decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    names = set(model._no_split_modules or ())
    return [part for part in model.modules() if type(part).__name__ in names]


def local(tensor: Tensor) -> Tensor:
    """Return this process's rows of a sharded tensor as a view; return other tensors unchanged."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_rows(tensor: Tensor) -> slice:
    if not isinstance(tensor, DTensor):
        return slice(0, tensor.shape[0])
    mesh = tensor.device_mesh
    # fully_shard cuts the first dimension into chunks of ceil(rows / processes), so the last
    # processes may hold fewer rows or none.
    most = -(-tensor.shape[0] // mesh.size())
    start = min(mesh.get_local_rank() * most, tensor.shape[0])
    return slice(start, start + tensor.to_local().shape[0])


def gathered(tensors: Mapping[str, Tensor], is_main: bool) -> dict[str, Tensor]:
    """Return whole tensors on the CPU of the main process, {} on the others.

    Collective: every process must call it with the same names in the same order.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if is_main:
            found[name] = whole.cpu()
    return found


def _layout(model: nn.Module) -> str:
    return json.dumps([(name, *tensor.shape) for name, tensor in model.named_parameters()])


def _first_difference(found: list[Any], wanted: list[Any]) -> tuple[str, str]:
    for pair in zip_longest(found, wanted):
        if pair[0] != pair[1]:
            break
    here, there = (f"{each[0]} of shape {each[1:]}" if each else "no weight" for each in pair)
    return here, there


def _broadcast_weights(module: nn.Module, device: torch.device) -> None:
    handed: dict[nn.Parameter, nn.Parameter] = {}
    is_main = dist.get_rank() == 0
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            if isinstance(parameter, DTensor):
                continue
            # A tied weight is broadcast once and stays tied.
            if parameter not in handed:
                # contiguous() makes no copy if the tensor is already on the device; sharing is
                # safe, since a broadcast from rank 0 does not write there.
                own = parameter.detach()
                own = (
                    own.to(device).contiguous() if is_main else torch.empty_like(own, device=device)
                )
                dist.broadcast(own, src=0)
                handed[parameter] = nn.Parameter(own, parameter.requires_grad)
            setattr(part, name, handed[parameter])
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, buffer.to(device))


def _broadcast_text(text: str, device: torch.device) -> str:
    texts = [text]
    dist.broadcast_object_list(texts, src=0, device=device)
    return texts[0]
