"""Inputs of an attention scheme's kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from lce_core.attention.cache import PreallocatedLayer
from lce_core.attention.placement import Placement
from lce_core.attention.rotation import Rotation
from lce_core.rope import RopeTable


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """Unrotated states of one layer, and everything needed to rotate and score them."""

    query: torch.Tensor
    """(batch, heads, queries, head_dim)"""
    key: torch.Tensor
    """(batch, kv_heads, keys, head_dim), including cached keys."""
    value: torch.Tensor
    """(batch, kv_heads, keys, head_dim)"""
    table: RopeTable
    """Table of the request, for all heads."""
    first_query: int
    """Position of query[..., 0, :]; query t sees keys 0..first_query + t."""
    scaling: float
    """Factor of the scores before softmax."""
    held: PreallocatedLayer | None = None
    """Cache layer that holds the keys and values of all heads, and keeps rotated keys."""
    part: tuple[int, int] = (0, 1)
    """(index, number): these heads are part `index` of `number` equal parts of the model's heads.
    """

    @property
    def length(self) -> int:
        """Number of tokens of the text so far."""
        return self.key.shape[2]

    def rotation(self, table: RopeTable | None = None) -> Rotation:
        """Return rotations by `table`, or by the request's table."""
        return Rotation(table or self.table, self.query, self.part)

    def placed(self, placement: Placement, seen: slice) -> torch.Tensor:
        """Return keys (batch, kv_heads, seen, head_dim), rotated.

        The cache keeps the rotated keys, if there is a cache.

        Args:
          placement: positions that the keys are rotated to.
          seen: range of the wanted keys; start and stop are required.
        """
        if self.held is None:
            return placement.rotate(self.key[:, :, seen], seen, self.part)
        index, heads = self.part[0], self.key.shape[1]
        return self.held.placed(placement, seen)[:, index * heads : (index + 1) * heads]

    def of_heads(self, index: int, number: int) -> AttentionInputs:
        """Return the inputs of part `index` of `number` equal parts of the heads."""
        query, key, value = (
            states.chunk(number, dim=1)[index] for states in (self.query, self.key, self.value)
        )
        return replace(self, query=query, key=key, value=value, part=(index, number))
