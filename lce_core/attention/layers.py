"""The rotation inside transformers' layers, in the precision of its cosines.

Their layers multiply queries and keys by what the rotary module returns. Cosines in float32 would
leave bf16 states in float32, and keys so in the cache; here products and sum are taken in float32
and rounded once to the states' own dtype, as `lce_core.attention.rotation` does it. The layers look
this function up in their module and offer no other way to it, so it is replaced there: the one
place where transformers' own code is. Where cosines and states have one dtype, as in every stock
model, transformers' function is called as it was, and so it is under autocast, which rounds what
attention reads.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

Applied = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def _keep_dtype(stock: Applied) -> Applied:
    def apply_rotary_pos_emb(
        query: torch.Tensor,
        key: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        unsqueeze_dim: int = 1,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotated queries and keys, of their own dtypes; shapes as in transformers."""
        if getattr(cos, "rotates_nothing", False):  # attention will do it
            return query, key
        if cos.dtype == query.dtype or torch.is_autocast_enabled(query.device.type):
            return stock(query, key, cos, sin, unsqueeze_dim)
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return _rotated(query, cos, sin), _rotated(key, cos, sin)

    return apply_rotary_pos_emb


def _rotated(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    precise = states.to(cos.dtype)
    pairs = cos.shape[-1] // 2
    turned = precise * cos
    turned[..., :pairs].sub_(precise[..., pairs:] * sin[..., :pairs])
    turned[..., pairs:].add_(precise[..., :pairs] * sin[..., pairs:])
    return turned.to(states.dtype)


@functools.cache  # once in a process
def keep_precision(model_type: str) -> None:
    """Lets layers of this type of model rotate in the precision of their cosines.

    Args:
      model_type: one of `lce_core.rope.architectures`.
    """
    module: Any = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    module.apply_rotary_pos_emb = _keep_dtype(module.apply_rotary_pos_emb)
