"""What a layer hands to the kernel of an attention scheme."""

from __future__ import annotations

from dataclasses import dataclass

import torch

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
    """The frequencies in force."""
    first_query: int
    """Position of query[..., 0, :]; query t attends keys 0..first_query + t."""
    scaling: float
    """Factor of the scores before softmax."""

    @property
    def length(self) -> int:
        """Tokens of the text so far."""
        return self.key.shape[2]

    def rotation(self) -> Rotation:
        """The table as rotations to all positions of the text so far."""
        return Rotation(self.table, self.length, self.query)
