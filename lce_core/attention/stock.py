"""transformers' SDPA attention, but without an attention mask for tokens that follow a cache.

transformers builds a mask for every chunk of tokens that follows cached tokens, because SDPA's
causal flag aligns the first query with the first key. CUDA's flash and cuDNN kernels refuse masks,
and the CPU kernel computes the masked scores anyway. Where `lce_core.attention.causal.kernel_for`
chooses another kernel than SDPA, that one computes the attention. All other passes call
transformers' function.

`TORCH_FLASH` restricts SDPA to torch's flash kernel; `PACKAGE` calls the flash-attn package.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from lce_core.attention.cache import PreallocatedLayer
from lce_core.attention.causal import attend_documents, attend_square, kernel_for
from lce_core.attention.flash import backend
from lce_core.attention.inputs import refuse_dropout
from lce_core.attention.token_graphs import over_caches

STOCK = "lce_sdpa"
TORCH_FLASH = "lce_torch_fa"
PACKAGE = "lce_package_fa"
"""Names under which transformers finds the functions below for attention and for masks. A name that
contains "flash" would make transformers look for its own integrations."""


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
    """Return the output (batch, tokens, heads, head_dim); transformers calls this function."""
    if (bounds := getattr(module, "lce_documents", None)) is not None:
        refuse_dropout(kwargs.get("dropout", 0.0))
        output = attend_documents(query, key, value, scaling, bounds)
        return output.transpose(1, 2), None
    if isinstance(key, PreallocatedLayer):
        key, value = key.keys, key.values
    if attention_mask is None and kernel_for(query, key) != "sdpa":
        output = attend_square(query, key, value, scaling)
        return output.transpose(1, 2).contiguous(), None
    stock: tuple[torch.Tensor, None] = sdpa_attention_forward(
        module, query, key, value, attention_mask, scaling=scaling, **kwargs
    )
    return stock


def _with_torch_flash(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, None]:
    # SDPA's choice is a setting of the process. The backward pass recomputes layers by calling this
    # function again, so it uses the same kernel.
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return _attention(*args, **kwargs)


def _with_package(
    module: Any,
    query: torch.Tensor,
    key: Any,
    value: Any,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute one layer's attention with the flash-attn package, which takes no mask.

    transformers' own call looks for packed documents in every layer, which waits for the GPU and
    cannot be left out of recorded token graphs.
    """
    if isinstance(key, PreallocatedLayer):
        key, value = key.keys, key.values
    if attention_mask is not None or getattr(module, "lce_documents", None) is not None:
        return _attention(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    return attend_package(query, key, value, scaling), None


def attend_package(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Return causal attention like `lce_core.attention.flash.attend_causal`, by the package."""
    from flash_attn import flash_attn_func

    # Autocast leaves rotated queries and keys in float32, and the package refuses them.
    states = (one.to(value.dtype).transpose(1, 2) for one in (query, key, value))
    output: torch.Tensor = flash_attn_func(*states, softmax_scale=scaling, causal=True)
    return output


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
    # A single query sees all keys. transformers omits its mask too, but not while a CUDA graph is
    # recorded; each replay would then use the mask of the recorded token, which has too few keys.
    fast = not torch.is_grad_enabled() and backend(given["device"], given["dtype"]) != "blocked"
    if filled and causal and (fast or q_length == 1):
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


for _name, _function in (
    (STOCK, _attention),
    (TORCH_FLASH, _with_torch_flash),
    (PACKAGE, _with_package),
):
    AttentionInterface.register(_name, over_caches(_function))
    AttentionMaskInterface.register(_name, _mask)
