"""Kernel of GroupedNeighbour: a windowed pass and a causal pass over floored positions, merged.

Cost: one causal pass plus queries x window pairs, linear memory. Keys beyond the window form a
bottom-right causal triangle: the query at position p sees keys 0..p - window.
"""

from __future__ import annotations

import torch

from lce_core.attention.flash import attend_causal
from lce_core.attention.partial import Partial
from lce_core.attention.rotation import Rotation
from lce_core.attention.schemes import GroupedNeighbour
from lce_core.attention.windowed import attend_near_and_far
from lce_core.rope import RopeTable


def attend(
    scheme: GroupedNeighbour,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    table: RopeTable,
    first_query: int,
    scaling: float,
) -> torch.Tensor:
    """Attention output (batch, heads, queries, head_dim); arguments as in AttentionScheme."""
    rotate = Rotation(table, key.shape[2], query)

    def far(later: torch.Tensor, first: int) -> tuple[Partial]:
        num_far = key.shape[2] - scheme.window
        groups = torch.arange(key.shape[2], device=query.device) // scheme.group
        shift = scheme.window - scheme.window // scheme.group
        part = attend_causal(
            rotate(later, groups[first:] + shift),
            rotate(key[:, :, :num_far], groups[:num_far]),
            value[:, :, :num_far],
            scaling,
        )
        return (part,)

    return attend_near_and_far(scheme.window, far, query, key, value, rotate, first_query, scaling)
