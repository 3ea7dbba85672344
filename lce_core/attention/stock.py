"""transformers' SDPA attention, but without an attention mask for tokens that follow a cache.

transformers builds a mask for every chunk of tokens that follows cached tokens, because SDPA's
causal flag aligns the first query with the first key. CUDA's flash and cuDNN kernels refuse masks,
and the CPU kernel computes the masked scores anyway. Such chunks use `lce_core.attention.flash`
instead, which aligns the last query with the last key. Whole texts for which SDPA has no fused
kernel use `lce_core.attention.causal`. All other passes call transformers' function unchanged.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from lce_core.attention.cache import PreallocatedLayer
from lce_core.attention.causal import attend_square, lacks_grouped_kernel
from lce_core.attention.flash import attend_causal, backend
from lce_core.attention.token_graphs import over_caches

STOCK = "lce_sdpa"
"""Name under which transformers finds the functions below for attention and for masks."""


@over_caches
def _attention(
    module: Any,
    query: torch.Tensor,
    key: Any,
    value: Any,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute one layer's attention; transformers calls this function.

    Returns the output (batch, tokens, heads, head_dim).
    """
    if isinstance(key, PreallocatedLayer):
        key, value = key.keys, key.values
    if attention_mask is None and _is_ours(query, key):
        output = attend_causal(query, key, value, scaling).output
        return output.transpose(1, 2).contiguous(), None
    square = attention_mask is None and query.shape[2] == key.shape[2] > 1
    if square and lacks_grouped_kernel(query.device, query.dtype):
        output = attend_square(query, key, value, scaling)
        return output.transpose(1, 2).contiguous(), None
    stock: tuple[torch.Tensor, None] = sdpa_attention_forward(
        module, query, key, value, attention_mask, scaling=scaling, **kwargs
    )
    return stock


def _is_ours(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Return True if `lce_core.attention.flash` should compute this attention.

    This is the case if the queries follow cached tokens. The exception is a single query for which
    no fast backend of `flash` can run. With a fast backend, single queries do not use torch's SDPA
    because it is slow for them: cuDNN, its first choice on newer GPUs, builds an execution plan for
    each number of keys, tens of milliseconds per token, and the CPU kernel reads shared keys once
    per query head.
    """
    if query.shape[2] == 1:
        return key.shape[2] > 1 and backend(query.device, query.dtype) != "blocked"
    return query.shape[2] < key.shape[2]


def _mask(
    *,
    q_length: int,
    kv_length: int,
    q_offset: Any,
    mask_function: Any,
    attention_mask: torch.Tensor | None,
    **given: Any,
) -> torch.Tensor | None:
    """Return None if `_attention` needs no mask for causal attention, else transformers' mask."""
    filled = kv_length == q_offset + q_length
    # A static cache has empty slots after the queries, so it needs a mask: without one, attention
    # would treat the queries as the last tokens.
    if not filled:
        given["allow_is_causal_skip"] = False
    causal = mask_function is causal_mask_function and attention_mask is None
    if filled and causal and _has_kernel(given.get("device"), given.get("dtype")):
        return None
    mask: torch.Tensor | None = sdpa_mask(
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        mask_function=mask_function,
        attention_mask=attention_mask,
        **given,
    )
    return mask


def _has_kernel(device: torch.device | None, dtype: torch.dtype | None) -> bool:
    """Return True if `lce_core.attention.flash` has a fast kernel and gradients are off."""
    if device is None or dtype is None or torch.is_grad_enabled():
        return False
    return backend(device, dtype) != "blocked"


AttentionInterface.register(STOCK, _attention)
AttentionMaskInterface.register(STOCK, _mask)
