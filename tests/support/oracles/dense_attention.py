"""Attention from its definitions: every pair of tokens, rotated by its relative position."""

import math
from collections.abc import Callable

import numpy as np
import torch

SCALING = 0.3


def dense(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    inv_freq: np.ndarray,
    distance: Callable[[int, int], float | tuple[float, ...] | None],
    scaling: float = SCALING,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Softmax over all (query, key) pairs, each rotated by its relative position; O(n^2).

    A distance is a number or a tuple with one number for each pair. `sinks` (heads,) adds exp(sink)
    to the softmax denominators of a head.
    """
    tokens, heads = query.shape[2], query.shape[1]
    key = key.repeat_interleave(heads // key.shape[1], dim=1).double()
    value = value.repeat_interleave(heads // value.shape[1], dim=1).double()
    query = query.double()
    frequencies = torch.from_numpy(np.broadcast_to(inv_freq, (heads, inv_freq.shape[-1])).copy())
    pairs = inv_freq.shape[-1]
    relative = [[distance(i, j) for j in range(tokens)] for i in range(tokens)]
    hidden = torch.tensor([[d is None for d in row] for row in relative])
    width = pairs if any(isinstance(d, tuple) for row in relative for d in row) else 1
    steps = torch.tensor(
        [[d if isinstance(d, tuple) else [d or 0] * width for d in row] for row in relative],
        dtype=torch.float64,
    )
    angles = steps * frequencies[:, None, None, :]
    q1, q2 = query[..., :pairs], query[..., pairs : 2 * pairs]
    k1, k2 = key[..., :pairs], key[..., pairs : 2 * pairs]
    along = q1[:, :, :, None] * k1[:, :, None] + q2[:, :, :, None] * k2[:, :, None]
    across = q1[:, :, :, None] * k2[:, :, None] - q2[:, :, :, None] * k1[:, :, None]
    scores = (along * angles.cos() + across * angles.sin()).sum(-1)
    scores += query[..., 2 * pairs :] @ key[..., 2 * pairs :].transpose(-1, -2)
    scores = (scores * scaling).masked_fill(hidden, -math.inf)
    if sinks is None:
        return scores.softmax(-1) @ value
    weights = scores.exp()
    return weights @ value / (weights.sum(-1, keepdim=True) + sinks.double().exp()[:, None, None])


def lambda_distance(window: int, num_global: int) -> Callable[[int, int], int | None]:
    def distance(i: int, j: int) -> int | None:
        if j > i:
            return None
        near, first = i - j < window, j < num_global
        return min(i - j, window) if near or first else None

    return distance


def grouped_distance(window: int, group: int) -> Callable[[int, int], int | None]:
    def distance(i: int, j: int) -> int | None:
        if j > i:
            return None
        far = math.floor(i / group) - math.floor(j / group) + window - window / group
        return i - j if i - j < window else int(far)

    return distance
