"""Patch transformers' layers so that they rotate queries and keys in the cosines' precision.

In most architectures, float32 cosines would turn bf16 queries and keys, and so the cache, into
float32. The patched function computes products and sums in float32 and rounds once to the dtype of
queries and keys, like `lce_core.attention.rotation`.

It replaces `apply_rotary_pos_emb` in the model's module, because layers offer no other hook. It
calls the stock function if cosines and queries have the same dtype, as in most stock models, and
under autocast, which rounds the attention inputs anyway.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

from lce_core.rope.architectures import ARCHITECTURES

Applied = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def _keep_dtype(stock: Applied) -> Applied:
    def apply_rotary_pos_emb(
        query: torch.Tensor,
        key: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        unsqueeze_dim: int = 1,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # The attention kernel rotates the states itself.
        if getattr(cos, "rotates_nothing", False):
            return query, key
        if cos.dtype == query.dtype or torch.is_autocast_enabled(query.device.type):
            return stock(query, key, cos, sin, unsqueeze_dim)
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return _rotated(query, cos, sin), _rotated(key, cos, sin)

    return apply_rotary_pos_emb


def _rotated(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    # Activation checkpointing requires operations that change no tensor in place.
    pairs = cos.shape[-1] // 2
    first, second = states.to(cos.dtype).split(pairs, dim=-1)
    turned = (
        first * cos[..., :pairs] - second * sin[..., :pairs],
        second * cos[..., pairs:] + first * sin[..., pairs:],
    )
    return torch.cat([half.to(states.dtype) for half in turned], dim=-1)


# Patch each module once per process.
@functools.cache
def keep_precision(model_type: str) -> None:
    """Patch transformers' layers of this `model_type` of config.json."""
    folder = ARCHITECTURES[model_type].module or model_type
    module: Any = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    module.apply_rotary_pos_emb = _keep_dtype(module.apply_rotary_pos_emb)
