"""The inputs that `lce_core.attention.registered` passes to an attention scheme's kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lce_core.attention.cache import PreallocatedLayer
from lce_core.attention.placement import Placement
from lce_core.attention.rotation import Rotation
from lce_core.rope import RopeTable


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """One layer's queries, keys and values before rotation, and the request's RoPE table."""

    query: Tensor
    """(batch, heads, queries, head_dim)"""
    key: Tensor
    """(batch, kv_heads, keys, head_dim), including cached keys."""
    value: Tensor
    """(batch, kv_heads, keys, head_dim)"""
    table: RopeTable
    """RoPE table of the current request; covers all heads even if `part` selects some of them."""
    first_query: int
    """Position of query[..., 0, :]."""
    scaling: float
    """Factor of the scores before softmax."""
    held: PreallocatedLayer | None = None
    """Key-value cache of this layer for all heads, which also stores rotated keys."""
    layer: int = 0
    sinks: Tensor | None = None
    """(heads,) learned logits, one more term of each head's softmax that has no value."""
    cap: float | None = None
    """Soft cap: scores x become cap tanh(x / cap); None for most models."""
    part: tuple[int, int] = (0, 1)
    """(index, number): the tensors hold group `index` of `number` equal groups of heads."""

    @property
    def length(self) -> int:
        return self.key.shape[2]

    def sharpened(self, factors: Callable[[Tensor], Tensor]) -> AttentionInputs:
        """Multiply each query by `factors` of the number of tokens up to it (queries,), float64."""
        counts = torch.arange(
            self.first_query + 1, self.length + 1, dtype=torch.float64, device=self.query.device
        )
        precise = torch.promote_types(self.query.dtype, torch.float32)
        query = self.query * factors(counts)[:, None].to(precise)
        return replace(self, query=query.to(self.query.dtype))

    def rotation(self, table: RopeTable | None = None) -> Rotation:
        return Rotation(table or self.table, self.query, self.part)

    def placed(self, placement: Placement, seen: slice) -> Tensor:
        """Return keys (batch, kv_heads, seen, head_dim), rotated, from the cache if possible."""
        if self.held is None or not placement.table.rotates:
            return placement.rotate(self.key[:, :, seen], seen, self.part)
        index, heads = self.part[0], self.key.shape[1]
        return self.held.placed(placement, seen)[:, index * heads : (index + 1) * heads]

    def of_heads(self, index: int, number: int) -> AttentionInputs:
        return replace(
            self,
            query=self.query.chunk(number, dim=1)[index],
            key=self.key.chunk(number, dim=1)[index],
            value=self.value.chunk(number, dim=1)[index],
            sinks=None if self.sinks is None else self.sinks.chunk(number)[index],
            part=(index, number),
        )
