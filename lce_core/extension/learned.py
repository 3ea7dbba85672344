"""What a method learns beside the model's weights: a rotary module of its own, and its file."""

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
"""File of a checkpoint that holds what a method has learned beside the model's weights."""

_ROTARY = "model.rotary_emb."


def make_rotary(
    method: Method, geometry: RopeGeometry, lengths: ContextLengths, *, identity: bool, seed: int
) -> RequestRotary:
    """The rotary module of a method, with what it learns as it is before training."""
    if method.rotary is None:
        return RequestRotary(geometry.rotary_dim, identity=identity)
    module, _, name = method.rotary.partition(":")
    made = getattr(importlib.import_module(module), name)
    rotary: RequestRotary = made(method, geometry, lengths, seed=seed)
    return rotary


def save_learned(weights: Mapping[str, torch.Tensor], folder: Path) -> dict[str, torch.Tensor]:
    """Writes what a method has learned to `folder`, if anything; the model's own weights."""
    learned = {
        name.removeprefix(_ROTARY): tensor.detach().contiguous()
        for name, tensor in weights.items()
        if name.startswith(_ROTARY)
    }
    if learned:
        save_file(learned, folder / LEARNED)
    return {name: tensor for name, tensor in weights.items() if not name.startswith(_ROTARY)}
