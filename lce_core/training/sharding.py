"""A model split over the processes of a run: each holds its rows of every weight.

Weights, gradients, optimiser moments and the EMA are split along their first dimension (torch's
`fully_shard`, FSDP2). A decoder layer is gathered before it is used and let go afterwards;
embedding, last norm and head stay gathered from forward to backward, because the loss reads them
directly. Everything is gathered in its own dtype and reduced in fp32, and autocast casts what was
gathered, so N processes compute what one computes, up to the order of sums.

Only the main process reads the weights. The others build the model without memory from its
configuration, and every unit is handed out and split before the next one: no device ever holds
more than its share and one unit, and the host holds the weights once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from accelerate import init_empty_weights  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from lce_core.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def build_on_main(
    build: Callable[[], PreTrainedModel], device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    """The result of `build` on the main process, and its like without weights on the others.

    Args:
      build: makes the model, on the CPU; called on the main process only.
      device: where the processes exchange tensors.
      dtype: of the weights that `build` makes.
    """
    if dist.get_rank() == 0:
        model = build()
        _broadcast_text(model.config.to_json_string(use_diff=False), device)
        _broadcast_text(_layout(model), device)
        return model
    from transformers import AutoConfig, AutoModelForCausalLM

    settings: dict[str, Any] = json.loads(_broadcast_text("", device))
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    # Buffers are real: rotary frequencies follow from the configuration and are not handed out.
    with init_empty_weights(include_buffers=False):
        empty: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation="sdpa"
        )
    empty.tie_weights()  # Building without memory unties.
    if (found := _layout(empty)) != (wanted := _broadcast_text("", device)):
        # Processes that disagree on what comes next would wait for each other for ever.
        raise DataError(
            "base model",
            "a configuration that gives other weights than the main process has:"
            f" {found}, not {wanted}",
            "the same weights in every process",
            "let the plug-in's config() say all that its weights depend on",
        )
    return empty


def shard(module: nn.Module, model: PreTrainedModel, device: torch.device) -> None:
    """Splits `module` in place over all processes; the main process gives the weights.

    Args:
      module: what will be called; it contains `model`.
      model: its layers, named by `_no_split_modules`, become units of their own.
      device: where this process computes.
    """
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    sums = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for unit in [*decoder_layers(model), *_of_other_dtype(model)]:
        _hand_out(unit, device)
        fully_shard(unit, mesh=mesh, reshard_after_forward=True, mp_policy=sums)
    _hand_out(module, device)
    fully_shard(module, mesh=mesh, mp_policy=sums)


def decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """The layers of a model, from the first on."""
    names = set(model._no_split_modules or ())
    return [part for part in model.modules() if type(part).__name__ in names]


def _of_other_dtype(model: PreTrainedModel) -> list[nn.Module]:
    """Modules with weights in another precision than the model's: a unit shares one dtype."""
    return [
        part
        for part in model.modules()
        if any(own.dtype != model.dtype for own in part.parameters(recurse=False))
    ]


def local(tensor: Tensor) -> Tensor:
    """This process's rows of a split tensor, sharing its memory; any other tensor as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_rows(tensor: Tensor) -> slice:
    """Which rows of the whole tensor `local` gives."""
    if not isinstance(tensor, DTensor):
        return slice(0, tensor.shape[0])
    mesh = tensor.device_mesh
    most = -(-tensor.shape[0] // mesh.size())
    start = min(mesh.get_local_rank() * most, tensor.shape[0])
    return slice(start, start + tensor.to_local().shape[0])


def gathered(tensors: Mapping[str, Tensor], is_main: bool) -> dict[str, Tensor]:
    """Whole tensors on the CPU of the main process, fetched one by one; nothing on the others.

    Every process must call this, with the same names in the same order.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if is_main:
            found[name] = whole.cpu()
    return found


def _layout(model: nn.Module) -> str:
    return json.dumps([(name, *tensor.shape) for name, tensor in model.named_parameters()])


def _hand_out(module: nn.Module, device: torch.device) -> None:
    """Puts the main process's weights on every device, for all parts that are not split yet."""
    handed: dict[nn.Parameter, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            if isinstance(parameter, DTensor):
                continue
            if parameter not in handed:  # A tied weight is handed out once and stays tied.
                whole = _broadcast(parameter.detach(), device)
                handed[parameter] = nn.Parameter(whole, parameter.requires_grad)
            setattr(part, name, handed[parameter])
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, buffer.to(device))


def _broadcast(tensor: Tensor, device: torch.device) -> Tensor:
    is_main = dist.get_rank() == 0
    # contiguous() is no copy where the tensor already lies on the device; it is not written to.
    whole = tensor.to(device).contiguous() if is_main else torch.empty_like(tensor, device=device)
    dist.broadcast(whole, src=0)
    return whole


def _broadcast_text(text: str, device: torch.device) -> str:
    content = torch.tensor(list(text.encode()), dtype=torch.uint8, device=device)
    length = torch.tensor(len(content), device=device)
    dist.broadcast(length, src=0)
    if dist.get_rank():
        content = torch.empty(int(length), dtype=torch.uint8, device=device)
    dist.broadcast(content, src=0)
    return bytes(content.tolist()).decode()
