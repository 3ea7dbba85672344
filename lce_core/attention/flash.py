"""Full, causal and windowed attention that also return the log-sum-exp, using only torch.

Three backends compute it: "torch_flash_cpu" (the CPU flash kernel behind SDPA), "torch_flash" (the
CUDA flash kernel: FlashAttention-2, or the FlashAttention-3 that `lce_core.extension.kernels`
activates) and "blocked" (matrix products over blocks of queries). In causal and windowed attention,
query row t of T sees no key after index K - T + t of K. Outputs are differentiable, the log-sum-exp
is not.

The CPU kernel returns a log-sum-exp of 0 for a query without visible keys and crashes on empty key
tensors, so callers must pass at least one visible key per query.
"""

from functools import lru_cache
from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.attention import varlen

from lce_core.attention.partial import Partial, concatenate, merge

Backend = Literal["torch_flash_cpu", "torch_flash", "blocked"]
States = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values."""
HALF = (torch.float16, torch.bfloat16)

_SCORES = 1 << 24
"""Maximum number of attention scores that matrix products materialise: 64 MiB in float32."""
_FULL_GPU = 1 << 14
"""Queries times heads from which the CUDA kernel need not split keys. Its blocks have 128 queries
of one head, and an A100 has 108 multiprocessors for them, an H100 132."""
SHARED_KEYS: dict[str, Any] = (
    {"enable_gqa": True} if "enable_gqa" in signature(varlen.varlen_attn).parameters else {}
)
"""Argument that lets query heads share keys; torch 2.11 allows it without the argument."""
_ROWS = 192
"""Maximum queries per block in windowed attention; smaller blocks mask fewer keys."""


def backend(device: torch.device, dtype: torch.dtype) -> Backend:
    if device.type == "cpu":
        return "torch_flash_cpu"
    if (
        device.type == "cuda"
        and dtype in HALF
        and torch.cuda.get_device_capability(device) >= (8, 0)
    ):
        return "torch_flash"
    return "blocked"


def attend_all(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Partial:
    """Return the attention of every query to every key, with its log-sum-exp.

    Queries are (batch, heads, queries, head_dim), keys and values (batch, kv_heads, keys,
    head_dim), rotated, with at least one key. `scaling` is the factor of the scores before softmax.
    """
    kernel, shared = backend(query.device, query.dtype), query.shape[1] > key.shape[1]
    if kernel == "torch_flash":
        return _flash_cuda((query, key, value), scaling)
    if kernel == "torch_flash_cpu" and shared and query.shape[2] == 1:
        # Treat query heads that share a key-value head as queries of one head. The CPU kernel would
        # otherwise read the shared keys once per query head.
        grouped = query.reshape(len(query), key.shape[1], -1, query.shape[3])
        part = _plain((grouped, key, value), scaling)
        return Partial(part.output.reshape(query.shape), part.lse.reshape(query.shape[:3]))
    return _plain((query, key, value), scaling)


def attend_causal(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Partial:
    """Return causal attention: query row t of T sees keys 0..K - T + t of K >= T keys."""
    earlier = key.shape[2] - query.shape[2]
    if query.shape[2] == 1:
        return attend_all(query, key, value, scaling)
    if backend(query.device, query.dtype) == "torch_flash":
        return _flash_cuda((query, key, value), scaling, causal=True)
    # Split the keys: the first K - T are visible to every query, the rest form a causal square. The
    # CPU kernel supports no other causal shape: its flag aligns the first query and the first key.
    square = _plain((query, key[:, :, earlier:], value[:, :, earlier:]), scaling, causal=True)
    if earlier == 0:
        return square
    before = attend_all(query, key[:, :, :earlier], value[:, :, :earlier], scaling)
    return merge(before, 0, square)


def attend_window(
    query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int
) -> Partial:
    """Return causal attention to the last `window` keys, the query's own included."""
    if window >= key.shape[2]:
        return attend_causal(query, key, value, scaling)
    unseen = max(0, key.shape[2] - query.shape[2] - window + 1)
    key, value = key[:, :, unseen:], value[:, :, unseen:]
    if query.shape[2] == 1:
        return attend_all(query, key, value, scaling)
    if backend(query.device, query.dtype) == "torch_flash":
        return _flash_cuda((query, key, value), scaling, window=window)
    return _window_by_blocks(query, key, value, scaling, window)


def _window_by_blocks(
    query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int
) -> Partial:
    """Compute `attend_window` without scoring all keys.

    The first queries see fewer than `window` keys; then come whole blocks, and fewer than a block.
    """
    num_queries, offset = query.shape[2], key.shape[2] - query.shape[2]
    parts = []
    # Number of rows whose window starts before the first key.
    growing = min(num_queries, window - 1 - offset)
    if growing:
        out = offset + growing
        parts.append(
            attend_causal(query[:, :, :growing], key[:, :, :out], value[:, :, :out], scaling)
        )
    rows = min(_ROWS, max(window, 64), num_queries - growing)
    if not rows:
        return parts[0]
    band = _band(rows, window, query.device, query.dtype)
    whole = growing + (num_queries - growing) // rows * rows
    parts.append(_bands((query[:, :, growing:whole], key, value), scaling, band))
    if left := num_queries - whole:
        seen = slice(-(left + window - 1), None)
        last = query[:, :, whole:], key[:, :, seen], value[:, :, seen]
        parts.append(_plain(last, scaling, mask=band[:left, : left + window - 1]))
    return concatenate(parts)


def _bands(states: States, scaling: float, band: Tensor) -> Partial:
    """Attend from consecutive blocks of queries, all under the same mask `band` (rows, columns).

    The keys of block n start at index n * rows: overlapping views along a batch dimension, so one
    call computes many blocks on all threads without copying keys.
    """
    query, key, value = states
    batch, heads, num_queries, _ = query.shape
    rows, span = band.shape
    num_blocks = num_queries // rows
    together = num_blocks
    if backend(query.device, query.dtype) == "blocked":
        together = max(1, _SCORES // (heads * band.numel()))
    texts = []
    for text in range(batch):
        queries = query[text].unfold(1, rows, rows).permute(1, 0, 3, 2)
        keys = key[text].unfold(1, span, rows).permute(1, 0, 3, 2)
        values = value[text].unfold(1, span, rows).permute(1, 0, 3, 2)
        parts = []
        for start in range(0, num_blocks, together):
            some = slice(start, min(start + together, num_blocks))
            part = _plain((queries[some], keys[some], values[some]), scaling, mask=band)
            output = part.output.transpose(0, 1).flatten(1, 2)
            parts.append(Partial(output[None], part.lse.transpose(0, 1).flatten(1, 2)[None]))
        texts.append(concatenate(parts))
    if batch == 1:
        return texts[0]
    output = torch.cat([text.output for text in texts])
    return Partial(output, torch.cat([text.lse for text in texts]))


@lru_cache(maxsize=4)
def _band(rows: int, window: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a (rows, rows + window - 1) additive mask: row t sees columns t..t + window - 1."""
    # The mask is cached across layers and requests, so it must not be an inference tensor, even if
    # the first call happens in inference mode.
    with torch.inference_mode(mode=False):
        visible = torch.ones(rows, rows + window - 1, dtype=torch.bool, device=device)
        visible = visible.triu().tril(window - 1)
        mask = torch.zeros(visible.shape, dtype=dtype, device=device)
        return mask.masked_fill_(~visible, -torch.inf)


def _flash_cuda(
    states: States, scaling: float, *, causal: bool = False, window: int | None = None
) -> Partial:
    """Call the CUDA flash kernel; causal and windowed attention align the last query and key."""
    left, right = (-1, 0 if causal else -1) if window is None else (window - 1, 0)
    query, key, value = (part.transpose(1, 2) for part in states)
    num_queries, num_keys = query.shape[1], key.shape[1]
    if len(query) == 1 and query.shape[2] * num_queries >= _FULL_GPU:
        output, lse = varlen.varlen_attn(
            query[0],
            key[0],
            value[0],
            _bounds(num_queries, query.device),
            _bounds(num_keys, key.device),
            num_queries,
            num_keys,
            return_aux=varlen.AuxRequest(lse=True),
            scale=scaling,
            window_size=(left, right),
            **SHARED_KEYS,
        )
        return Partial(output.transpose(0, 1)[None], lse[None])
    # Private, because no public function returns the log-sum-exp and splits the keys of few queries
    # over the GPU. `varlen_attn` runs such queries on a few multiprocessors, and needs a copy of
    # the cache if there are several texts.
    output, lse = torch.ops.aten._flash_attention_forward.default(
        query,
        key,
        value,
        cum_seq_q=None,
        cum_seq_k=None,
        max_q=num_queries,
        max_k=num_keys,
        dropout_p=0.0,
        is_causal=right == 0,
        return_debug_mask=False,
        scale=scaling,
        window_size_left=left,
        window_size_right=right,
    )[:2]
    return Partial(output.transpose(1, 2), lse)


@lru_cache(maxsize=16)
def _bounds(tokens: int, device: torch.device) -> Tensor:
    with torch.inference_mode(mode=False):
        return torch.arange(0, tokens + 1, tokens, dtype=torch.int32, device=device)


def _plain(
    states: States, scaling: float, *, causal: bool = False, mask: Tensor | None = None
) -> Partial:
    """Attend without the CUDA flash kernel; `causal` needs as many queries as keys."""
    query, key, value = states
    if backend(query.device, query.dtype) == "torch_flash_cpu":
        # Private, because SDPA does not return the log-sum-exp.
        output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, causal, attn_mask=mask, scale=scaling
        )
        return Partial(output, lse)
    if mask is not None:
        return _softmax(states, scaling, mask)
    batch, heads, num_queries, _ = query.shape
    rows = max(1, _SCORES // (batch * heads * key.shape[2]))
    parts = []
    for start in range(0, num_queries, rows):
        block = query[:, :, start : start + rows]
        stop = start + block.shape[2] if causal else key.shape[2]
        if causal:
            mask = torch.full((block.shape[2], stop), -torch.inf, device=query.device)
            mask = mask.triu(start + 1)
        parts.append(_softmax((block, key[:, :, :stop], value[:, :, :stop]), scaling, mask))
    return concatenate(parts)


def _softmax(states: States, scaling: float, mask: Tensor | None) -> Partial:
    query, key, value = states
    precise = torch.promote_types(query.dtype, torch.float32)
    grouped = query.to(precise).unflatten(1, (key.shape[1], -1))
    scores = grouped @ key.to(precise).unsqueeze(2).transpose(-1, -2) * scaling
    if mask is not None:
        scores += mask
    lse = scores.logsumexp(dim=-1)
    output = (scores - lse[..., None]).exp_() @ value.to(precise).unsqueeze(2)
    return Partial(output.flatten(1, 2).to(query.dtype), lse.flatten(1, 2))
