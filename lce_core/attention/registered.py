"""The one attention function that transformers calls for all schemes.

It is registered with AttentionInterface and, under the same name, with AttentionMaskInterface:
without the second, transformers drops padding and packing silently; with it they are refused. Each
attention module of an extended model carries its scheme and table as `lce_scheme`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

from lce_core.attention import AttentionScheme
from lce_core.attention.inputs import AttentionInputs
from lce_core.errors import SpecError

ATTENTION = "lce_scheme"
"""Name of the registered attention and mask functions."""


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,  # noqa: ARG001 - position_ids and flags that transformers passes to all
) -> tuple[torch.Tensor, None]:
    """The registered attention: states as in AttentionScheme, output (batch, tokens, heads, D)."""
    scheme, table = module.lce_scheme
    if attention_mask is not None:  # the mask function below makes none, so a caller did
        raise SpecError(
            "attention mask",
            f"a mask of shape {tuple(attention_mask.shape)}",
            "no mask: attention schemes decide by themselves who sees whom",
            "pass no 4-D mask",
        )
    if dropout:
        raise SpecError(
            "attention dropout", dropout, "no dropout in an attention scheme", "set it to 0"
        )
    if query.requires_grad and not scheme.differentiable:
        raise SpecError(
            type(scheme).__name__,
            "a forward pass that records gradients",
            "inference, which this scheme is for",
            "run under torch.inference_mode()",
        )
    # Under autocast the identity rotary leaves queries and keys in float32.
    query, key = query.to(value.dtype), key.to(value.dtype)
    first_query = key.shape[2] - query.shape[2]
    inputs = AttentionInputs(query, key, value, table, first_query, scaling)
    output = _kernel(scheme)(scheme, inputs)
    return output.transpose(1, 2).contiguous(), None


def _kernel(scheme: AttentionScheme) -> Callable[..., torch.Tensor]:
    module, _, function = scheme.kernel.partition(":")
    kernel: Callable[..., torch.Tensor] = getattr(importlib.import_module(module), function)
    return kernel


def _mask(
    *,
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor,
    mask_function: Callable[..., Any],
    attention_mask: torch.Tensor | None,
    **kwargs: Any,  # noqa: ARG001 - sizes and flags that transformers passes to all
) -> None:
    """The registered mask: schemes are causal by themselves, so it only refuses other masks."""
    padded = attention_mask is not None and not bool(attention_mask.all())
    if padded or mask_function is not causal_mask_function:
        raise SpecError(
            "attention mask",
            "padding" if padded else "packed documents",
            "rows that are one document from their first token on",
            "batch rows of equal length, without padding",
        )
    if kv_length != q_offset + q_length:
        raise SpecError(
            "key-value cache",
            f"{kv_length} keys for {q_offset + q_length} tokens",
            "a cache that holds exactly the tokens seen so far",
            "use transformers' DynamicCache",
        )


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, _mask)
