"""The attention functions that transformers calls, for attention schemes and for stock attention.

Models without schemes use transformers' SDPA attention, but without an attention mask for tokens
that follow a cache. transformers builds a mask for every chunk of tokens that follows cached
tokens, because SDPA's causal flag aligns the first query with the first key. CUDA's flash and cuDNN
kernels refuse masks, and the CPU kernel computes the masked scores anyway.
"""

import importlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from lce_core.attention import AttentionScheme
from lce_core.attention.cache import PreallocatedLayer
from lce_core.attention.causal import attend_documents, attend_square, in_documents, kernel_for
from lce_core.attention.flash import States, backend
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.token_graphs import over_caches
from lce_core.errors import SpecError

ATTENTION = "lce_scheme"
STOCK = "lce_sdpa"
TORCH_FLASH = "lce_torch_fa"
PACKAGE = "lce_package_fa"
"""Names for transformers, which looks for its own integrations if a name contains "flash"."""
_TEMPORARIES = 1 << 29
"""Limit in bytes for a layer's temporary tensors, but at least one key-value head (512 MiB)."""
_ROOM_OF_GPUS = 2
"""Factor of this limit on GPUs, which need time to start each operation of each group of heads."""
_KERNELS: dict[str, Callable[..., Tensor]] = {}


def _attention(
    module: Any,
    query: Tensor,
    key: Any,
    value: Any,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    s_aux: Tensor | None = None,
    softcap: float | None = None,
    **kwargs: Any,  # noqa: ARG001 - position_ids and flags that transformers passes to all
) -> tuple[Tensor, None]:
    """Run the attention scheme that the module stores as `lce_scheme`.

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
    _refuse_dropout(dropout)
    if query.requires_grad and not scheme.differentiable:
        raise SpecError(
            type(scheme).__name__,
            "a forward pass that records gradients",
            "inference, the only use of this scheme",
            "run under torch.inference_mode()",
        )
    assert s_aux is None or scheme.counts_sinks, f"{type(scheme).__name__} ignores sinks"
    assert softcap is None or scheme.caps_scores, f"{type(scheme).__name__} ignores a soft cap"
    held = key if isinstance(key, PreallocatedLayer) else None
    if held is not None:
        key, value = held.keys, held.values
    # Under autocast the identity rotary module leaves queries and keys in float32.
    query, key = query.to(value.dtype), key.to(value.dtype)
    first_query = key.shape[2] - query.shape[2]
    place = held, module.layer_idx, s_aux
    if (bounds := getattr(module, "lce_documents", None)) is not None:

        def attend(states: States) -> Tensor:
            own = AttentionInputs(*states, table, 0, scaling, *place, cap=softcap)
            return _kernel(scheme)(scheme, _scaled(own, scheme, log_base))

        output = in_documents((query, key, value), bounds, attend)
        return output.transpose(1, 2).contiguous(), None
    states = query, key, value
    inputs = AttentionInputs(*states, table, first_query, scaling, *place, cap=softcap)
    inputs = _scaled(inputs, scheme, log_base)
    number = 1 if query.requires_grad or not scheme.heads_alike else num_parts(inputs)
    if number == 1:
        return _kernel(scheme)(scheme, inputs).transpose(1, 2).contiguous(), None
    output = query.new_empty(query.transpose(1, 2).shape)
    for index, some in enumerate(output.chunk(number, dim=2)):
        some.copy_(_kernel(scheme)(scheme, inputs.of_heads(index, number)).transpose(1, 2))
    return output, None


def _refuse_dropout(dropout: float) -> None:
    if dropout:
        raise SpecError(
            "attention dropout",
            dropout,
            "0, because attention schemes and document masks have no dropout",
            'set "attention_dropout": 0 in the model\'s config.json',
        )


def num_parts(inputs: AttentionInputs) -> int:
    """Return the smallest number of groups of heads whose temporary tensors keep the limit."""
    # Rotated queries, two outputs to merge and, without a cache, rotated keys.
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
    if log_base is None:
        return inputs
    most, unit = scheme.most_keys or inputs.length, math.log(log_base)
    return inputs.sharpened(lambda counts: (counts.clamp(max=most).log() / unit).clamp(min=1))


def _kernel(scheme: AttentionScheme) -> Callable[..., Tensor]:
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
    q_offset: int | Tensor,
    mask_function: Callable[..., Any],
    attention_mask: Tensor | None,
    local_size: int | None = None,
    **kwargs: Any,  # noqa: ARG001 - sizes and flags that transformers passes to all
) -> None:
    """Refuse padding and packed documents, which transformers would silently ignore.

    `local_size` is the window of the masks that a model with sliding layers makes; its mask for
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


def _stock_attention(
    module: Any,
    query: Tensor,
    key: Any,
    value: Any,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    package: bool = False,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    if (bounds := getattr(module, "lce_documents", None)) is not None:
        _refuse_dropout(dropout)
        output = attend_documents((query, key, value), scaling, bounds)
        return output.transpose(1, 2), None
    if isinstance(key, PreallocatedLayer):
        key, value = key.keys, key.values
    if attention_mask is None and package:
        # transformers' own call of the package looks for packed documents in every layer, which
        # waits for the GPU and cannot be left out of recorded token graphs.
        return attend_package((query, key, value), scaling, dropout), None
    if attention_mask is None and kernel_for(query, key) != "sdpa":
        output = attend_square((query, key, value), scaling, dropout=dropout)
        return output.transpose(1, 2).contiguous(), None
    stock: tuple[Tensor, None] = sdpa_attention_forward(
        module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
    )
    return stock


_with_package = partial(_stock_attention, package=True)


def _with_torch_flash(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    # SDPA's choice is a setting of the process. The backward pass recomputes layers by calling this
    # function again, so it uses the same kernel.
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return _stock_attention(*args, **kwargs)


def attend_package(states: States, scaling: float, dropout: float = 0.0) -> Tensor:
    from flash_attn import flash_attn_func

    # Autocast leaves rotated queries and keys in float32, and the package refuses them.
    turned = (one.to(states[2].dtype).transpose(1, 2) for one in states)
    output: Tensor = flash_attn_func(*turned, dropout, softmax_scale=scaling, causal=True)
    return output


def _stock_mask(**given: Any) -> Tensor | None:
    """Return None where `_stock_attention` needs no mask, else transformers' mask."""
    filled = given["kv_length"] == given["q_offset"] + given["q_length"]
    # A static cache has empty slots after the queries, so it needs a mask: without one, attention
    # would treat the queries as the last tokens.
    if not filled:
        given["allow_is_causal_skip"] = False
    causal = given["mask_function"] is causal_mask_function and given["attention_mask"] is None
    # A single query sees all keys. transformers omits its mask too, but not while a CUDA graph is
    # recorded; each replay would then use the mask of the recorded token, which has too few keys.
    fast = not torch.is_grad_enabled() and backend(given["device"], given["dtype"]) != "blocked"
    if filled and causal and (fast or given["q_length"] == 1):
        return None
    mask: Tensor | None = sdpa_mask(**given)
    return mask


for _name, _function, _own_mask in (
    (ATTENTION, _attention, _mask),
    (STOCK, _stock_attention, _stock_mask),
    (TORCH_FLASH, _with_torch_flash, _stock_mask),
    (PACKAGE, _with_package, _stock_mask),
):
    AttentionInterface.register(_name, over_caches(_function))
    AttentionMaskInterface.register(_name, _own_mask)
