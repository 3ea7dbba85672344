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
from transformers.models.auto.configuration_auto import model_type_to_module_name

from lce_core.rope.architectures import ARCHITECTURES, Architecture

Applied = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def _keep_dtype(stock: Applied, architecture: Architecture) -> Applied:
    def apply_rotary_pos_emb(
        query: torch.Tensor,
        key: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        unsqueeze_dim: int = 1,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        width, rest = cos.shape[-1], getattr(cos, "rest_factor", 1.0)
        if getattr(cos, "rotates_nothing", False):
            # The attention kernel rotates the states itself, in pairs that are half a head apart.
            # Scores stay the same if queries and keys are reordered alike.
            if architecture.adjacent:
                query, key = _reordered(query, width), _reordered(key, width)
        elif cos.ndim == 4:
            # One table per key-value head, (batch, key-value heads, tokens, width).
            query, key = (_rotated_heads(states, cos, sin, architecture) for states in (query, key))
        elif cos.dtype == query.dtype or torch.is_autocast_enabled(query.device.type):
            query, key = stock(query, key, cos, sin, unsqueeze_dim)
        else:
            cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
            query, key = (_rotated(states, cos, sin, architecture) for states in (query, key))
        if rest != 1.0:
            query, key = (
                torch.cat((states[..., :width], states[..., width:] * rest), dim=-1)
                for states in (query, key)
            )
        return query, key

    return apply_rotary_pos_emb


def _reordered(states: torch.Tensor, width: int) -> torch.Tensor:
    """Move the second elements of adjacent pairs among the first `width` behind the first ones."""
    halves = _halves(states[..., :width], adjacent=True)
    return torch.cat((*halves, states[..., width:]), dim=-1)


def _rotated(
    states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, architecture: Architecture
) -> torch.Tensor:
    # Activation checkpointing requires operations that change no tensor in place.
    width = cos.shape[-1]
    precise = states[..., :width].to(cos.dtype)
    first, second = _halves(precise, adjacent=architecture.adjacent)
    cos, _ = _halves(cos, adjacent=architecture.repeats_cosines)
    sin, _ = _halves(sin, adjacent=architecture.repeats_cosines)
    turned = first * cos - second * sin, second * cos + first * sin
    halves = [half.to(states.dtype) for half in turned]
    if architecture.adjacent:
        halves = [torch.stack(halves, dim=-1).flatten(-2)]
    return torch.cat([*halves, states[..., width:]], dim=-1)


def _rotated_heads(
    states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, architecture: Architecture
) -> torch.Tensor:
    groups = states.unflatten(1, (cos.shape[1], -1))
    return _rotated(groups, cos[:, :, None], sin[:, :, None], architecture).flatten(1, 2)


def _halves(states: torch.Tensor, *, adjacent: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Split elements into those of each pair's first and second one."""
    if adjacent:
        return states[..., ::2], states[..., 1::2]
    pairs = states.shape[-1] // 2
    return states[..., :pairs], states[..., pairs:]


# Patch each module once per process.
@functools.cache
def keep_precision(model_type: str) -> None:
    """Patch transformers' layers of this `model_type` of config.json."""
    folder = model_type_to_module_name(model_type)
    module: Any = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    module.apply_rotary_pos_emb = _keep_dtype(
        module.apply_rotary_pos_emb, ARCHITECTURES[model_type]
    )
