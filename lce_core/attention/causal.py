"""Causal attention with torch's SDPA, and the kernels of schemes that consist of it."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.attention import varlen
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from lce_core.attention.flash import (
    HALF,
    SHARED_KEYS,
    States,
    attend_causal,
    attend_window,
    backend,
)
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import with_sinks
from lce_core.attention.placement import Placement
from lce_core.attention.schemes import TRUE_POSITIONS, FullCausal, ShiftedSparse, SlidingWindow

_CAPPED_SCORES = 1 << 24
"""Scores that capped attention computes at a time: 64 MiB in float32."""
_PLANNED_TOKENS = 1024
"""cuDNN computes texts of a multiple of this number of tokens: windows, and pieces of prompts."""


def full_causal(_scheme: FullCausal, inputs: AttentionInputs) -> Tensor:
    length = inputs.length
    query = inputs.rotation()(inputs.query, slice(inputs.first_query, length))
    # torch.compile can trace a dataclass as an argument, but not as the default of a field.
    key = inputs.placed(Placement(inputs.table, TRUE_POSITIONS), slice(0, length))
    sinks = inputs.sinks
    if inputs.cap is not None:
        return attend_capped((query, key, inputs.value), inputs.scaling, inputs.cap)
    # Only without gradients are sinks merged in by the log-sum-exp; training adds a key for them.
    if inputs.first_query or (sinks is not None and not torch.is_grad_enabled()):
        return with_sinks(attend_causal(query, key, inputs.value, inputs.scaling), sinks).output
    return attend_square((query, key, inputs.value), inputs.scaling, sinks)


def attend_square(
    states: States, scaling: float, sinks: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Return causal attention (batch, heads, tokens, head_dim) by `kernel_for`; differentiable.

    Only "flash" allows queries that follow cached tokens, and it has no dropout. Sinks need a whole
    text.
    """
    query, key, value = states
    if sinks is not None:
        # The sink is the first key. One more query before all others keeps the square causal.
        states = _sink_as_key((pad(query, (0, 0, 1, 0)), key, value), scaling, sinks)
        return attend_square(states, scaling)[:, :, 1:, : value.shape[-1]]
    kernel, groups = kernel_for(query, key), query.shape[1] // key.shape[1]
    if kernel == "flash":
        assert not dropout, "a training pass with cached tokens"
        return attend_causal(query, key, value, scaling).output
    if kernel == "spread":
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
    return scaled_dot_product_attention(
        query,
        key,
        value,
        dropout_p=dropout,
        is_causal=True,
        scale=scaling,
        enable_gqa=query.shape[1] > key.shape[1],
    )


def attend_capped(states: States, scaling: float, cap: float, window: int | None = None) -> Tensor:
    """Return causal attention with softly capped scores; differentiable.

    The last query sees the last key and, with a window, the `window` - 1 keys before it.
    """
    query, key, value = states
    first = key.shape[2] - query.shape[2]
    size = max(1, _CAPPED_SCORES // (query.shape[0] * query.shape[1] * key.shape[2]))
    outputs = []
    for rows in query.split(size, dim=2):
        end = first + rows.shape[2]
        start = 0 if window is None else max(0, first - window + 1)
        given = rows, key[:, :, start:end], value[:, :, start:end], scaling, cap, window
        # The backward pass computes the scores again, because those of all blocks fill the memory.
        outputs.append(
            checkpoint(_capped_rows, *given, use_reentrant=False)
            if torch.is_grad_enabled()
            else _capped_rows(*given)
        )
        first = end
    return torch.cat(outputs, dim=2)


def _capped_rows(
    query: Tensor, key: Tensor, value: Tensor, scaling: float, cap: float, window: int | None
) -> Tensor:
    grouped = query.unflatten(1, (key.shape[1], -1))
    scores = grouped @ key.unsqueeze(2).transpose(-1, -2)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    scores = torch.tanh(scores * (scaling / cap)) * cap
    places = torch.arange(key.shape[2], device=query.device)
    distance = places[key.shape[2] - query.shape[2] :, None] - places
    hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1).to(value.dtype)
    return (weights @ value.unsqueeze(2)).flatten(1, 2)


def attend_documents(states: States, scaling: float, bounds: Tensor) -> Tensor:
    """Return attention within documents whose bounds are `PackedRows.document_bounds`."""
    # Autocast leaves rotated queries and keys in float32.
    query, key, value = states
    states = query.to(value.dtype), key.to(value.dtype), value
    if backend(value.device, value.dtype) != "torch_flash":
        return in_documents(states, bounds, partial(attend_square, scaling=scaling))
    batch, length = len(query), query.shape[2]
    rows = (one.transpose(1, 2).flatten(0, 1) for one in states)
    attend: Any = partial(varlen.varlen_attn, scale=scaling, window_size=(-1, 0), **SHARED_KEYS)
    whole: Tensor = attend(*rows, bounds, bounds, length, length).unflatten(0, (batch, length))
    return whole.transpose(1, 2)


def in_documents(states: States, bounds: Tensor, attend: Callable[[States], Tensor]) -> Tensor:
    batch, length = len(states[0]), states[0].shape[2]
    outputs = []
    for start, stop in pairwise(bounds.tolist()):
        row, first = divmod(start, length)
        own = slice(first, first + stop - start)
        query, key, value = (one[row : row + 1, :, own] for one in states)
        outputs.append(attend((query, key, value)))
    rows: Tensor = torch.cat(outputs, dim=2)[0].unflatten(1, (batch, length))
    return rows.transpose(0, 1)


def kernel_for(query: Tensor, key: Tensor) -> Literal["flash", "spread", "sdpa"]:
    """Return what computes causal attention in which the last query sees all keys.

    "spread" is SDPA with the keys and values copied for each query head.
    """
    num_queries = query.shape[2]
    if num_queries < key.shape[2]:
        # SDPA computes no causal attention of queries that follow cached tokens. It computes single
        # queries, but slowly: cuDNN builds an execution plan for each number of keys, tens of
        # milliseconds per token, and the CPU kernel reads shared keys once per query head.
        is_flash = num_queries > 1 or backend(query.device, query.dtype) != "blocked"
        return "flash" if is_flash else "sdpa"
    # cuDNN is faster, but builds a plan for each new shape, in up to 0.4 s (reported). That pays
    # off for shapes that come again: training rows and multiples of `_PLANNED_TOKENS`. Compiled
    # layers are trained, and torch.compile cannot trace `backend`.
    again = torch.is_grad_enabled() or num_queries % _PLANNED_TOKENS == 0
    if not again and backend(query.device, query.dtype) == "torch_flash":
        return "flash"
    # On CUDA in float32 and float64, flash and cuDNN cannot run, and the memory-efficient kernel
    # supports shared heads only from torch 2.14. Without a fused kernel torch materialises all
    # scores: 39 GB for 9 heads and 32,768 tokens.
    precise = query.device.type == "cuda" and query.dtype not in HALF
    shared = query.shape[1] > key.shape[1]
    return "spread" if shared and precise and not torch.is_autocast_enabled("cuda") else "sdpa"


def _sink_as_key(states: States, scaling: float, sinks: Tensor) -> States:
    """Return queries, keys and values with the sinks as one more key, the first one.

    Each head gets one more element: sink / scaling in queries, 1 in the new key, 0 elsewhere. So
    the new key's score is the sink of the query's head, also if query heads share a key.
    """
    query, key, value = states
    more = 8  # Fused kernels need a multiple of 8 elements.
    scores = (sinks / scaling).to(query.dtype)[:, None, None]
    column = scores.expand(*query.shape[:3], 1)
    query = torch.cat((query, pad(column, (0, more - 1))), dim=-1)
    first = torch.zeros(key.shape[-1] + more, dtype=key.dtype, device=key.device)
    first[key.shape[-1]] = 1
    first = first.expand(*key.shape[:2], 1, -1)
    return query, torch.cat((first, pad(key, (0, more))), dim=2), pad(value, (0, more, 1, 0))


def sliding_window(scheme: SlidingWindow, inputs: AttentionInputs) -> Tensor:
    window, first, length = scheme.window, inputs.first_query, inputs.length
    # Only keys that some query sees. Rotating all keys of a cache would copy it for each token.
    start = max(0, first - window + 1)
    keys = inputs.placed(Placement(inputs.table, TRUE_POSITIONS), slice(0, length))[:, :, start:]
    values = inputs.value[:, :, start:]
    queries = inputs.rotation()(inputs.query, slice(first, length))
    if inputs.cap is not None:
        return attend_capped((queries, keys, values), inputs.scaling, inputs.cap, window)
    if inputs.sinks is not None and not torch.is_grad_enabled():
        part = attend_window(queries, keys, values, inputs.scaling, window)
        return with_sinks(part, inputs.sinks).output
    outputs = []
    for begin in range(first, length, window):
        end = min(begin + window, length)
        seen = slice(max(0, begin - window + 1) - start, end - start)
        places = torch.arange(seen.start + start, end, device=queries.device)
        distance = torch.arange(begin, end, device=queries.device)[:, None] - places
        mask = (distance >= 0) & (distance < window)
        rows = queries[:, :, begin - first : end - first]
        states = rows, keys[:, :, seen], values[:, :, seen]
        if inputs.sinks is not None:
            states = _sink_as_key(states, inputs.scaling, inputs.sinks)
            mask = pad(mask, (1, 0), value=True)
        output = scaled_dot_product_attention(
            *states,
            attn_mask=mask,
            scale=inputs.scaling,
            enable_gqa=queries.shape[1] != keys.shape[1],
        )
        outputs.append(output[..., : values.shape[-1]])
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)


def shifted_sparse(scheme: ShiftedSparse, inputs: AttentionInputs) -> Tensor:
    length, first_query = inputs.length, inputs.first_query
    assert not first_query, "a training scheme, used with a cache"
    assert scheme.group % 2 == 0, f"blocks of {scheme.group} tokens"
    assert length % scheme.group == 0, f"{length} tokens in blocks of {scheme.group}"
    rotate, scaling = inputs.rotation(), inputs.scaling
    states = (rotate(inputs.query, slice(length)), rotate(inputs.key, slice(length)), inputs.value)
    plain, shifted = _halves_of_heads(states)
    sinks, first = inputs.sinks, plain[0].shape[1]
    own, others = (None, None) if sinks is None else (sinks[:first], sinks[first:])
    outputs = (
        _attend_blocks(plain, scheme.group, scaling, own),
        _attend_shifted(shifted, scheme.group, scaling, others),
    )
    return torch.cat(outputs, dim=1)


def _halves_of_heads(states: States) -> tuple[States, States]:
    query, key, value = states
    heads, shared = query.shape[1], query.shape[1] // key.shape[1]
    if (heads // 2) % shared:
        # Both halves use the middle key-value head, so neither half has groups of equal size.
        key, value = (part.repeat_interleave(shared, dim=1) for part in (key, value))
        shared = 1
    first = heads // 2
    plain, shifted = zip(
        query.split([first, heads - first], dim=1),
        key.split([first // shared, (heads - first) // shared], dim=1),
        value.split([first // shared, (heads - first) // shared], dim=1),
        strict=True,
    )
    return plain, shifted


def _attend_shifted(states: States, group: int, scaling: float, sinks: Tensor | None) -> Tensor:
    half, between = group // 2, states[0].shape[2] - group
    first, middle, last = zip(
        *(part.split([half, between, half], dim=2) for part in states), strict=True
    )
    query, key, value = (torch.cat(ends, dim=2) for ends in zip(first, last, strict=True))
    ends = _attend_blocks((query, key, value), half, scaling, sinks)
    if not between:
        return ends
    start, end = ends.split(half, dim=2)
    return torch.cat((start, _attend_blocks(middle, group, scaling, sinks), end), dim=2)


def _attend_blocks(states: States, size: int, scaling: float, sinks: Tensor | None) -> Tensor:
    # Fold blocks into the batch: (batch x blocks, heads, size, head_dim). No copy is made if memory
    # order is (batch, tokens, heads, head_dim), as projections write it.
    query, key, value = (
        part.transpose(1, 2).unflatten(1, (-1, size)).flatten(0, 1).transpose(1, 2)
        for part in states
    )
    output = attend_square((query, key, value), scaling, sinks)
    rows = output.transpose(1, 2).unflatten(0, (states[0].shape[0], -1))
    unfolded: Tensor = rows.flatten(1, 2).transpose(1, 2)
    return unfolded
