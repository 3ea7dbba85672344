"""Attention over a subset of the keys, and the exact merge of two such results.

The softmax over a union of disjoint key sets follows from each set's output and the logarithm of
its softmax denominator (log-sum-exp). So schemes that rotate far keys differently use a fast kernel
for each set, and no (queries, keys) tensor exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_ROWS = 4096
"""Number of queries that a CPU merges at a time, to keep float32 copies small."""
_COPY_BYTES = 1 << 28
"""Limit for a float32 copy of the queries' outputs that a GPU merges at a time (256 MiB)."""


class Partial(NamedTuple):
    """Attention over a subset of the keys; each query sees at least one key of the subset."""

    output: Tensor
    """(batch, heads, queries, head_dim)"""
    lse: Tensor
    """(batch, heads, queries) natural logarithm of the softmax denominator, float32 or float64."""

    def rows(self, start: int, stop: int | None = None) -> Partial:
        return Partial(self.output[:, :, start:stop], self.lse[:, :, start:stop])


def with_sinks(part: Partial, sinks: Tensor | None) -> Partial:
    """Merge in one more key per head, with score `sinks` (heads,) and value 0, in place."""
    if sinks is None:
        return part
    assert not part.output.requires_grad, "inference only"
    scores = sinks.detach().to(part.lse.dtype)[:, None]
    share = torch.sigmoid(part.lse - scores)[..., None]
    for first in range(0, part.lse.shape[2], _ROWS):
        rows = slice(first, first + _ROWS)
        part.output[:, :, rows] *= share[:, :, rows]
    return Partial(part.output, torch.logaddexp(part.lse, scores))


def merge(rows: Partial, start: int, part: Partial) -> Partial:
    """Merge `part`, over other keys, into the results of queries start, start + 1, ... in place."""
    # torch propagates no gradients through the log-sum-exp.
    assert not rows.output.requires_grad, "inference only"
    assert not part.output.requires_grad, "inference only"
    num_rows, step = part.lse.shape[2], _ROWS
    if part.lse.device.type != "cpu":
        per_row = part.lse[:, :, :1].numel() * part.output.shape[-1] * part.lse.itemsize
        step = max(_ROWS, _COPY_BYTES // per_row)
    for begin in range(0, num_rows, step):
        stop = min(begin + step, num_rows)
        first, second = rows.rows(start + begin, start + stop), part.rows(begin, stop)
        # exp(second.lse) / (exp(first.lse) + exp(second.lse)), which a sigmoid computes without
        # overflow.
        share = torch.sigmoid(second.lse - first.lse)[..., None]
        mean = first.output.to(share.dtype)
        first.output.copy_(torch.lerp(mean, second.output.to(share.dtype), share, out=mean))
        torch.logaddexp(first.lse, second.lse, out=first.lse)
    return rows


def concatenate(parts: Sequence[Partial]) -> Partial:
    if len(parts) == 1:
        return parts[0]
    # Concatenate in the memory order (tokens, heads, elements), which kernels write and models
    # read.
    output = torch.cat([part.output.transpose(1, 2) for part in parts], dim=1).transpose(1, 2)
    return Partial(output, torch.cat([part.lse for part in parts], dim=2))
