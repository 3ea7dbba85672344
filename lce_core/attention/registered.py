"""The attention function that transformers calls for every attention scheme.

Importing this module registers an attention function with AttentionInterface and a mask function
with AttentionMaskInterface. Without a mask function, transformers would silently ignore padding and
packed documents; this one raises SpecError for both.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

from lce_core.attention import AttentionScheme
from lce_core.attention.cache import PreallocatedLayer
from lce_core.attention.causal import in_documents
from lce_core.attention.inputs import AttentionInputs, refuse_dropout
from lce_core.attention.token_graphs import over_caches
from lce_core.errors import SpecError

ATTENTION = "lce_scheme"
"""Name under which transformers finds the functions below for attention and for masks."""
_TEMPORARIES = 1 << 29
"""Limit in bytes for the temporary tensors of one layer's attention, without the output (512 MiB).
The tensors of a single key-value head may exceed the limit, because a head cannot be split."""
_ROOM_OF_GPUS = 2
"""Factor of this limit on GPUs, which need time to start each operation of each group of heads."""
_KERNELS: dict[str, Callable[..., torch.Tensor]] = {}


@over_caches
def _attention(
    module: Any,
    query: torch.Tensor,
    key: Any,
    value: Any,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,  # noqa: ARG001 - position_ids and flags that transformers passes to all
) -> tuple[torch.Tensor, None]:
    """Run the attention scheme that the module stores as `lce_scheme`; transformers calls this.

    Returns the output (batch, tokens, heads, head_dim). Arguments are as in `AttentionInputs`, but
    `key` and `value` may be the layer's cache (PreallocatedLayer), and `s_aux` has the sinks. If
    the module stores `lce_documents`, each document of packed rows attends like a text of its own.
    """
    scheme, table, log_base = module.lce_scheme
    # `_mask` never makes a mask, so this mask comes from the caller.
    if attention_mask is not None:
        raise SpecError(
            "attention mask",
            f"a mask of shape {tuple(attention_mask.shape)}",
            "no 4-D mask, because attention schemes compute their own masks",
            "call the model without attention_mask",
        )
    refuse_dropout(dropout)
    if query.requires_grad and not scheme.differentiable:
        raise SpecError(
            type(scheme).__name__,
            "a forward pass that records gradients",
            "inference, the only use of this scheme",
            "run under torch.inference_mode()",
        )
    assert s_aux is None or scheme.counts_sinks, f"{type(scheme).__name__} ignores sinks"
    held = key if isinstance(key, PreallocatedLayer) else None
    if held is not None:
        key, value = held.keys, held.values
    # Under autocast the identity rotary module leaves queries and keys in float32.
    query, key = query.to(value.dtype), key.to(value.dtype)
    first_query = key.shape[2] - query.shape[2]
    place = held, module.layer_idx, s_aux
    if (bounds := getattr(module, "lce_documents", None)) is not None:

        def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            own = AttentionInputs(query, key, value, table, 0, scaling, *place)
            return _kernel(scheme)(scheme, _scaled(own, scheme, log_base))

        output = in_documents((query, key, value), bounds, attend)
        return output.transpose(1, 2).contiguous(), None
    inputs = AttentionInputs(query, key, value, table, first_query, scaling, *place)
    inputs = _scaled(inputs, scheme, log_base)
    number = 1 if query.requires_grad or not scheme.heads_alike else num_parts(inputs)
    if number == 1:
        return _kernel(scheme)(scheme, inputs).transpose(1, 2).contiguous(), None
    output = query.new_empty(query.transpose(1, 2).shape)
    for index, some in enumerate(output.chunk(number, dim=2)):
        some.copy_(_kernel(scheme)(scheme, inputs.of_heads(index, number)).transpose(1, 2))
    return output, None


def num_parts(inputs: AttentionInputs) -> int:
    """Return the smallest number of groups of heads whose temporary tensors keep the limit.

    Groups are computed one after the other: rotated queries, two outputs to merge and, without a
    cache, rotated keys. Layers of this size run no slower in groups.
    """
    states = 4 * inputs.query.nbytes
    if inputs.held is None:
        states += 2 * inputs.key.nbytes
    kv_heads = inputs.key.shape[1]
    limit = _TEMPORARIES * (1 if inputs.query.device.type == "cpu" else _ROOM_OF_GPUS)
    parts = (number for number in range(1, kv_heads) if kv_heads % number == 0)
    return next((number for number in parts if states <= number * limit), kv_heads)


def _scaled(
    inputs: AttentionInputs, scheme: AttentionScheme, log_base: int | None
) -> AttentionInputs:
    """Multiply the queries by `LayerAttention.query_factor` of their layer."""
    if log_base is None:
        return inputs
    most, unit = scheme.most_keys or inputs.length, math.log(log_base)
    return inputs.sharpened(lambda counts: (counts.clamp(max=most).log() / unit).clamp(min=1))


def _kernel(scheme: AttentionScheme) -> Callable[..., torch.Tensor]:
    # torch.compile cannot trace an import. The first forward pass of a model is never compiled, so
    # compiled layers find the kernel here.
    if scheme.kernel not in _KERNELS:
        module, _, function = scheme.kernel.partition(":")
        _KERNELS[scheme.kernel] = getattr(importlib.import_module(module), function)
    return _KERNELS[scheme.kernel]


def _mask(
    *,
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor,
    mask_function: Callable[..., Any],
    attention_mask: torch.Tensor | None,
    local_size: int | None = None,
    **kwargs: Any,  # noqa: ARG001 - sizes and flags that transformers passes to all
) -> None:
    """Return None, because attention schemes need no mask; refuse padding and packed documents.

    `local_size` is the window of the masks that a model with sliding layers makes. Its mask for
    full layers, of the same pass, shows whether documents are packed.
    """
    padded = attention_mask is not None and not bool(attention_mask.all())
    packed = mask_function is not causal_mask_function and local_size is None
    if padded or packed:
        raise SpecError(
            "attention mask",
            "padding" if padded else "packed documents",
            "rows of one document each, without padding",
            "batch texts of equal length" if padded else "put one document in each row",
        )
    if kv_length != q_offset + q_length:
        raise SpecError(
            "key-value cache",
            f"{kv_length} keys for {q_offset + q_length} tokens",
            "one key for each token seen so far",
            "use transformers' DynamicCache, not a static or sliding cache",
        )


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, _mask)
