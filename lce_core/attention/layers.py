"""The rotation inside transformers' Llama and Phi layers, in the precision of its cosines.

Their layers multiply queries and keys by what the rotary module returns. Cosines in float32 would
leave bf16 states in float32, and keys so in the cache; here products and sum are taken in float32
and rounded once to the states' own dtype, as `lce_core.attention.rotation` does it. The layers look
this function up in their module and offer no other way to it. Where cosines and states have one
dtype, as in every stock model, it is transformers' own, and so it is under autocast, which rounds
what attention reads.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch
from transformers.models.llama import modeling_llama
from transformers.models.phi import modeling_phi

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


def _replace(module: ModuleType) -> None:
    module.apply_rotary_pos_emb = _keep_dtype(module.apply_rotary_pos_emb)  # type: ignore[attr-defined]


_replace(modeling_llama)
_replace(modeling_phi)
