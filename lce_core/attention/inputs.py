"""What a layer hands to the kernel of an attention scheme."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from lce_core.attention.cache import PreallocatedLayer
from lce_core.attention.placement import Placement
from lce_core.attention.rotation import Rotation
from lce_core.rope import RopeTable


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """States before rotation, and what is needed to rotate and score them."""

    query: torch.Tensor
    """(batch, heads, queries, head_dim)"""
    key: torch.Tensor
    """(batch, kv_heads, keys, head_dim), cached ones included."""
    value: torch.Tensor
    """(batch, kv_heads, keys, head_dim)"""
    table: RopeTable
    """The frequencies in force, of all heads."""
    first_query: int
    """Position of query[..., 0, :]; query t attends keys 0..first_query + t."""
    scaling: float
    """Factor of the scores before softmax."""
    held: PreallocatedLayer | None = None
    """The cache that keys and values are of, which keeps rotated keys; of all heads."""
    part: tuple[int, int] = (0, 1)
    """Which of how many equal parts of the model's heads these are."""

    @property
    def length(self) -> int:
        """Tokens of the text so far."""
        return self.key.shape[2]

    def rotation(self, table: RopeTable | None = None) -> Rotation:
        """The table in force, or another one, as rotations."""
        return Rotation(table or self.table, self.query, self.part)

    def placed(self, placement: Placement, seen: slice) -> torch.Tensor:
        """Keys (batch, kv_heads, seen, head_dim) rotated to their places.

        Args:
          placement: where they go.
          seen: positions of those wanted, start and stop given.
        """
        if self.held is None:
            return placement.rotate(self.key[:, :, seen], seen, self.part)
        index, heads = self.part[0], self.key.shape[1]
        return self.held.placed(placement, seen)[:, index * heads : (index + 1) * heads]

    def of_heads(self, index: int, number: int) -> AttentionInputs:
        """One of a number of equal parts of the heads."""
        query, key, value = (
            states.chunk(number, dim=1)[index] for states in (self.query, self.key, self.value)
        )
        return replace(self, query=query, key=key, value=value, part=(index, number))
