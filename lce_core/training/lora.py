"""LoRA, low-rank updates of linear layers: added before training, merged into the checkpoint.

A layer computes W x + alpha / rank * B (A x) with W frozen. B starts at zero, so training starts
from the unchanged model. The layer keeps the names `weight` and `bias`, so the merged checkpoint
has the stock model's parameter names. An EMA averages A and B separately.

The peft package is not used: once installed, transformers' Auto classes follow an
adapter_config.json to weights that no fingerprint covers. It merges whole modules, whereas a
sharded run has to merge gathered tensors, and under autocast it copies every layer's input to fp32.

Source: Hu et al. 2021, arXiv:2106.09685, equation 3 and section 4.1; A as in their code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from lce_core.errors import SpecError
from lce_core.methods import LoRA

_DOWN, _UP = ".lora_A", ".lora_B"


class LoRALinear(nn.Module):
    """A linear layer with a frozen weight and a trained low-rank update; A is drawn on the CPU."""

    def __init__(self, layer: nn.Linear, lora: LoRA, generator: torch.Generator) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.scale = lora.alpha / lora.rank
        drawn = torch.empty(lora.rank, layer.in_features)
        nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator)
        self.lora_A = nn.Parameter(drawn.to(layer.weight))
        self.lora_B = nn.Parameter(layer.weight.new_zeros(layer.out_features, lora.rank))

    def forward(self, states: Tensor) -> Tensor:
        update = linear(linear(states, self.lora_A) * self.scale, self.lora_B)
        return linear(states, self.weight, self.bias) + update


def add_lora(model: nn.Module, lora: LoRA, seed: int) -> None:
    """Add low-rank updates to `model` in place, drawn from `seed`, and freeze all other weights.

    Weights whose name contains an entry of `lora.whole` are not frozen.
    """
    generator = torch.Generator().manual_seed(seed)
    found = [
        (name, layer)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and name.rpartition(".")[2] in lora.targets
    ]
    if not found:
        raise SpecError(
            type(model).__name__,
            f"no linear layer called {' or '.join(lora.targets)}",
            "at least one linear layer with one of these names, to which LoRA adds its update",
            "name linear layers of this model in the targets of the method's lora()",
        )
    for name, layer in found:
        model.set_submodule(name, LoRALinear(layer, lora, generator))
    for name, parameter in model.named_parameters():
        update = name.endswith((_DOWN, _UP))
        parameter.requires_grad_(update or any(part in name for part in lora.whole))


@torch.no_grad()
def merged(weights: Mapping[str, Tensor], lora: LoRA) -> dict[str, Tensor]:
    """Return the stock model's weights: W + alpha / rank * B A for each layer with an update."""
    plain = {}
    for name, tensor in weights.items():
        layer = name.removesuffix(".weight")
        if name.endswith((_DOWN, _UP)):
            continue
        if (down := weights.get(layer + _DOWN)) is not None:
            up = weights[layer + _UP]
            tensor = torch.addmm(tensor, up, down, alpha=lora.alpha / lora.rank)
        plain[name] = tensor
    return plain
