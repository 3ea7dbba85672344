"""Create and save the parameters that a method adds to the model's weights (CLEX's network)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from lce_core.attention.rotary import RequestRotary
from lce_core.methods import Method
from lce_core.rope import ContextLengths, RopeGeometry

if TYPE_CHECKING:
    from collections.abc import Mapping

LEARNED = "extension.safetensors"
"""Name of the file in a checkpoint with the trained parameters that the method adds."""

_ROTARY = "model.rotary_emb."


def make_rotary(
    method: Method,
    geometry: RopeGeometry,
    lengths: ContextLengths,
    num_layers: int,
    *,
    identity: bool,
    seed: int,
) -> RequestRotary:
    """Create the method's rotary module; `seed` draws the parameters that the method adds."""
    if method.rotary is None:
        return RequestRotary(geometry.rotary_dim, identity=identity)
    module, _, name = method.rotary.partition(":")
    made = getattr(importlib.import_module(module), name)
    rotary: RequestRotary = made(method, geometry, lengths, num_layers, seed=seed)
    return rotary


def save_learned(weights: Mapping[str, torch.Tensor], folder: Path) -> dict[str, torch.Tensor]:
    """Write the parameters that the method adds to `folder`; return all other weights."""
    learned = {
        name.removeprefix(_ROTARY): tensor.detach().contiguous()
        for name, tensor in weights.items()
        if name.startswith(_ROTARY)
    }
    if learned:
        save_file(learned, folder / LEARNED)
    return {name: tensor for name, tensor in weights.items() if not name.startswith(_ROTARY)}
