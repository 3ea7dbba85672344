"""Causal attention with torch's SDPA, and the kernel of FullCausal."""

from __future__ import annotations

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from lce_core.attention.flash import attend_causal, backend
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import with_sinks
from lce_core.attention.placement import Placement
from lce_core.attention.schemes import FullCausal

_PLANNED_TOKENS = 1024
"""cuDNN computes texts of a multiple of this number of tokens: windows, and pieces of prompts."""


def full_causal(_scheme: FullCausal, inputs: AttentionInputs) -> torch.Tensor:
    """Return the attention output of FullCausal; differentiable without cached keys.

    Inference merges sinks in by the log-sum-exp. Training needs their gradients, so it adds a key.
    """
    length = inputs.length
    query = inputs.rotation()(inputs.query, slice(inputs.first_query, length))
    key = inputs.placed(Placement(inputs.table), slice(0, length))
    sinks = inputs.sinks
    if inputs.first_query or (sinks is not None and not torch.is_grad_enabled()):
        return with_sinks(attend_causal(query, key, inputs.value, inputs.scaling), sinks).output
    return attend_square(query, key, inputs.value, inputs.scaling, sinks)


def attend_square(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return causal attention of a whole text, (batch, heads, tokens, head_dim); differentiable."""
    if sinks is not None:
        # The sink is the first key. One more query before all others keeps the square causal.
        states = sink_as_key(pad(query, (0, 0, 1, 0)), key, value, scaling, sinks)
        return attend_square(*states, scaling)[:, :, 1:, : value.shape[-1]]
    if avoids_plan(query):
        return attend_causal(query, key, value, scaling).output
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and lacks_grouped_kernel(query.device, query.dtype):
        # Without a fused kernel torch materialises all scores: 39 GB for 9 heads and 32,768 tokens.
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
        groups = 1
    return scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling, enable_gqa=groups > 1
    )


def avoids_plan(query: torch.Tensor) -> bool:
    """Return True if the flash kernel should compute this whole text, although cuDNN's is faster.

    cuDNN builds a plan for each new shape, in up to 0.4 s (reported). That pays off for shapes that
    come again: training rows and multiples of `_PLANNED_TOKENS`.
    """
    if torch.is_grad_enabled() or query.shape[2] % _PLANNED_TOKENS == 0:
        return False
    return backend(query.device, query.dtype) == "torch_flash"


def sink_as_key(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float,
    sinks: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return queries, keys and values with the sinks as one more key, the first one.

    Any attention function then includes the sinks and has gradients for them. Each head gets one
    more element: sink / scaling in queries, 1 in the new key, 0 elsewhere. So the new key's score
    is the sink of the query's head, also if query heads share a key; its value is 0.
    """
    # Fused kernels need a multiple of 8 elements.
    more = 8
    scores = (sinks / scaling).to(query.dtype)[:, None, None]
    column = scores.expand(*query.shape[:3], 1)
    query = torch.cat((query, pad(column, (0, more - 1))), dim=-1)
    first = torch.zeros(key.shape[-1] + more, dtype=key.dtype, device=key.device)
    first[key.shape[-1]] = 1
    first = first.expand(*key.shape[:2], 1, -1)
    return query, torch.cat((first, pad(key, (0, more))), dim=2), pad(value, (0, more, 1, 0))


def lacks_grouped_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if torch's SDPA has no fused kernel for query heads that share a key-value head.

    On CUDA in float32 and float64 without autocast, flash and cuDNN cannot run, and the
    memory-efficient kernel supports shared heads only from torch 2.14.
    """
    precise = dtype not in (torch.float16, torch.bfloat16)
    return device.type == "cuda" and precise and not torch.is_autocast_enabled("cuda")
