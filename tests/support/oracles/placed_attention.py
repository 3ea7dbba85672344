"""Attention in numpy where each query has several positions, one for each kind of key."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from lce_core.attention.inputs import AttentionInputs
from lce_core.rope import RopeTable

SCALING = 0.3
States = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def random_states(
    tokens: int, *, batch: int = 2, heads: int = 4, kv_heads: int = 2, dim: int = 8
) -> States:
    generator = torch.Generator().manual_seed(tokens * 31 + heads)
    query, key, value = (
        torch.randn(batch, number, tokens, dim, generator=generator, dtype=torch.float64)
        for number in (heads, kv_heads, kv_heads)
    )
    return query, key, value


def attended(
    parts: Sequence[torch.Tensor],
    inv_freq: np.ndarray,
    queries: Sequence[np.ndarray],
    kinds: np.ndarray,
    keys: np.ndarray,
) -> np.ndarray:
    """Causal softmax attention (batch, heads, tokens, head_dim).

    Args:
      parts: queries, keys and values as `AttentionInputs` has them.
      inv_freq: (pairs,)
      queries: positions (tokens,) of the queries, for each kind of key.
      kinds: (queries, keys) index into `queries` of each pair.
      keys: positions of the keys, (tokens,) or (kinds, tokens).
    """
    query, key, value = (part.numpy() for part in parts)
    shared = query.shape[1] // key.shape[1]
    key, value = key.repeat(shared, axis=1), value.repeat(shared, axis=1)
    plain = 2 * len(inv_freq)
    unrotated = query[..., plain:] @ key[..., plain:].swapaxes(-1, -2)
    pairs = zip(queries, np.broadcast_to(keys, (len(queries), key.shape[2])), strict=True)
    scores = [
        (turned(query, one, inv_freq) @ turned(key, other, inv_freq).conj().swapaxes(-1, -2)).real
        for one, other in pairs
    ]
    chosen = np.choose(kinds, scores) + unrotated
    exponents = np.where(np.tri(key.shape[2], dtype=bool), chosen * SCALING, -np.inf)
    powers = np.exp(exponents - exponents.max(-1, keepdims=True))
    weighted: np.ndarray = powers / powers.sum(-1, keepdims=True) @ value
    return weighted


def turned(states: np.ndarray, places: np.ndarray, inv_freq: np.ndarray) -> np.ndarray:
    """The rotated pairs as complex numbers (batch, heads, tokens, pairs)."""
    pairs = len(inv_freq)
    numbers = states[..., :pairs] + 1j * states[..., pairs : 2 * pairs]
    found: np.ndarray = numbers * np.exp(1j * places[:, None] * inv_freq)
    return found


def in_chunks(
    kernel: Callable[..., torch.Tensor],
    scheme: Any,
    parts: States,
    rope: RopeTable,
    cuts: Sequence[int],
    scaling: float = SCALING,
) -> torch.Tensor:
    """Outputs of a kernel that reads a text in pieces, as decoding does."""
    query, key, value = parts
    outputs = []
    for start, stop in pairwise([0, *cuts, query.shape[2]]):
        seen = key[:, :, :stop], value[:, :, :stop]
        inputs = AttentionInputs(query[:, :, start:stop], *seen, rope, start, scaling)
        outputs.append(kernel(scheme, inputs))
    return torch.cat(outputs, dim=2)
