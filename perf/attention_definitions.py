"""Attention of a single query in float64, from the definition of each attention scheme.

perf/attention.py compares the optimised functions with these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from lce_core.attention import AttentionScheme
from lce_core.attention.schemes import BlockRetrieval, ShiftedSparse

States = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Query, key and value before rotation, (1, heads, tokens, head_dim) each."""
Row = Callable[[States, int], torch.Tensor]
"""Computes the output (heads, head_dim) of one query in float64."""


def deviation(expected: Row, inputs: States, output: torch.Tensor, row: int) -> float:
    """Return the largest absolute error of one query's output."""
    return float((output[0, :, row].cpu().double() - expected(inputs, row)).abs().max())


def defined_by(scheme: AttentionScheme) -> Callable[..., torch.Tensor]:
    """Return the function that computes a scheme's output from its definition."""
    if isinstance(scheme, BlockRetrieval):
        return block_retrieval
    return by_two_distances if isinstance(scheme, ShiftedSparse) else by_distance


def by_two_distances(
    scheme: ShiftedSparse, inv_freq: np.ndarray, scaling: float, inputs: States, row: int
) -> torch.Tensor:
    """Compute `by_distance`, with shifted distances for the second half of the heads."""
    halves = zip(*(part.tensor_split((part.shape[1] // 2,), 1) for part in inputs), strict=True)
    plain, shifted = (cast("States", half) for half in halves)
    ends = SimpleNamespace(distance=partial(scheme.distance, shifted=True))
    return torch.cat(
        [
            by_distance(scheme, inv_freq, scaling, plain, row),
            by_distance(ends, inv_freq, scaling, shifted, row),
        ]
    )


def by_distance(
    scheme: Any, inv_freq: np.ndarray, scaling: float, inputs: States, row: int
) -> torch.Tensor:
    """Return softmax attention over all visible keys, rotated by the scheme's distances."""
    seen = [(j, scheme.distance(row, j)) for j in range(row + 1)]
    index = [j for j, distance in seen if distance is not None]
    steps = [distance for _, distance in seen if distance is not None]
    scores = scores_at(inputs, row, index, steps, inv_freq) * scaling
    return (scores.softmax(-1)[:, None] @ inputs[2][0].cpu()[:, index].double())[:, 0]


def block_retrieval(
    scheme: BlockRetrieval, inv_freq: np.ndarray, scaling: float, inputs: States, row: int
) -> torch.Tensor:
    """Return grouped-softmax attention over the query's chunk and the top_k retrieved blocks."""
    block, start = scheme.block, row // scheme.chunk * scheme.chunk
    blocks, own = start // block, row // block * block
    top_k = min(scheme.top_k, blocks)
    value = inputs[2][0].cpu().double()

    def scores(keys: Sequence[int], slots: Sequence[int]) -> torch.Tensor:
        """Return scores of keys whose blocks are placed `slot` blocks before the query's chunk."""
        steps = [
            row - start + slot * block - key % block for key, slot in zip(keys, slots, strict=True)
        ]
        return scores_at(inputs, row, keys, steps, inv_freq) * scaling

    back = [min(blocks - b, top_k + 1) for b in range(blocks)]
    gates = scores([b * block + block - 1 for b in range(blocks)], back) if blocks else None
    outputs = []
    for head in range(len(value)):
        picks = [] if gates is None else sorted(gates[head].topk(top_k).indices.tolist())
        slots = [top_k + 1 - j - (b >= blocks - top_k) for j, b in enumerate(picks)]
        groups = [
            *zip(picks, slots, strict=True),
            *((b, blocks - b) for b in range(start // block, own // block)),
        ]
        tokens = list(range(own, min(row, own + block - 2) + 1))
        outer = [scores(tokens, [blocks - own // block] * len(tokens))[head]]
        read = [value[head, tokens]]
        for b, slot in groups:
            inside = scores(range(b * block, b * block + block), [slot] * block)[head]
            outer.append(inside[-1:])
            read.append(
                inside[:-1].softmax(-1)[None] @ value[head, b * block : (b + 1) * block - 1]
            )
        outputs.append(torch.cat(outer).softmax(-1) @ torch.cat(read))
    return torch.stack(outputs)


def scores_at(
    inputs: States, row: int, keys: Sequence[int], steps: Sequence[float], inv_freq: np.ndarray
) -> torch.Tensor:
    """Return the products (heads, keys) of one query with keys rotated by the given distances."""
    query = inputs[0][0, :, row].cpu().double()
    key = inputs[1][0].cpu()[:, list(keys)].double()
    distances = torch.tensor(list(steps), dtype=torch.float64)
    angles = distances[:, None] * torch.from_numpy(inv_freq)[..., None, :]
    pairs = angles.shape[-1]
    (q1, q2), (k1, k2) = query.split(pairs, -1), key.split(pairs, -1)
    q1, q2 = q1[:, None], q2[:, None]
    along, across = q1 * k1 + q2 * k2, q1 * k2 - q2 * k1
    return (along * angles.cos() + across * angles.sin()).sum(-1)
