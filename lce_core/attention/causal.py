"""Causal attention with torch's SDPA, and the kernel of FullCausal."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from lce_core.attention.flash import attend_causal
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.placement import Placement
from lce_core.attention.schemes import FullCausal


def full_causal(_scheme: FullCausal, inputs: AttentionInputs) -> torch.Tensor:
    """Return the attention output of FullCausal (batch, heads, queries, head_dim).

    The result is differentiable if no cached keys precede the queries, which is the case in
    training.
    """
    length = inputs.length
    query = inputs.rotation()(inputs.query, slice(inputs.first_query, length))
    key = inputs.placed(Placement(inputs.table), slice(0, length))
    if inputs.first_query:
        return attend_causal(query, key, inputs.value, inputs.scaling).output
    return attend_square(query, key, inputs.value, inputs.scaling)


def attend_square(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Return causal attention of a whole text, (batch, heads, tokens, head_dim); differentiable.

    Args:
      query: (batch, heads, tokens, head_dim), rotated.
      key: (batch, kv_heads, tokens, head_dim), rotated.
      value: (batch, kv_heads, tokens, head_dim).
      scaling: factor of the scores before softmax.
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and lacks_grouped_kernel(query.device, query.dtype):
        # Without a fused kernel torch materialises all scores: 39 GB for 9 heads and 32,768 tokens.
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
        groups = 1
    return scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling, enable_gqa=groups > 1
    )


def lacks_grouped_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if torch's SDPA has no fused kernel for query heads that share a key-value head.

    This is the case on CUDA in float32 and float64 without autocast: flash and cuDNN need half
    precision, and the memory-efficient kernel supports shared heads only from torch 2.14.
    """
    precise = dtype not in (torch.float16, torch.bfloat16)
    return device.type == "cuda" and precise and not torch.is_autocast_enabled("cuda")
