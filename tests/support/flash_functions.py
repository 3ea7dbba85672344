"""Flash functions of other packages, with their signatures and dense attention inside.

They follow the documented alignment (the last query sees the last key) and log their calls.
"""

import math
from typing import Any

import torch


def dense(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float | None,
    window: tuple[int, int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and log-sum-exp of (batch, heads, tokens, head_dim); -1 is no limit."""
    shared = query.shape[1] // key.shape[1]
    key, value = (states.repeat_interleave(shared, dim=1) for states in (key, value))
    num_queries, num_keys = query.shape[2], key.shape[2]
    places = torch.arange(num_queries)[:, None] + num_keys - num_queries
    distance = places - torch.arange(num_keys)
    left, right = window
    hidden = torch.zeros(num_queries, num_keys, dtype=torch.bool)
    if left >= 0:
        hidden |= distance > left
    if right >= 0:
        hidden |= -distance > right
    scores = query @ key.mT * (scale or 1 / math.sqrt(query.shape[3]))
    scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


class Package:
    """Stub of the module `flash_attn`, release 2.8."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        """Number of queries and keys of each call."""

    def flash_attn_func(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
        alibi_slopes: torch.Tensor | None = None,
        deterministic: bool = False,
        return_attn_probs: bool = False,
    ) -> Any:
        assert not softcap
        assert alibi_slopes is None
        assert q.dtype == k.dtype == v.dtype
        self.calls.append((q.shape[1], k.shape[1]))
        left, right = window_size
        states = (one.transpose(1, 2) for one in (q, k, v))
        output, lse = dense(*states, softmax_scale, (left, 0 if causal else right))
        output = torch.dropout(output.transpose(1, 2).contiguous(), dropout_p, train=True)
        return (output, lse, None) if return_attn_probs else output


def varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Stand in for torch's function of this name, for one text of (tokens, heads, head_dim)."""
    assert return_aux.lse
    assert enable_gqa or query.shape[1] == key.shape[1] or torch.__version__ < "2.12"
    assert cu_seq_q.tolist() == [0, len(query)] == [0, max_q]
    assert cu_seq_k.tolist() == [0, len(key)] == [0, max_k]
    states = (one.transpose(0, 1)[None] for one in (query, key, value))
    output, lse = dense(*states, scale, window_size)
    return output[0].transpose(0, 1), lse[0]
