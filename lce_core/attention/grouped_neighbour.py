"""Kernel of GroupedNeighbour: merge windowed attention with causal attention at floored positions.

Cost: one causal pass plus queries x window pairs, linear memory. Keys beyond the window form a
causal triangle aligned to the bottom right: the query at position p sees keys 0..p - window.
"""

from __future__ import annotations

import torch

from lce_core.attention.flash import attend_causal
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import Partial
from lce_core.attention.placement import Placement
from lce_core.attention.schemes import GroupedNeighbour
from lce_core.attention.windowed import attend_near_and_far


def attend(scheme: GroupedNeighbour, inputs: AttentionInputs) -> torch.Tensor:
    """Return the attention output (batch, heads, queries, head_dim)."""

    def far(later: AttentionInputs) -> tuple[Partial]:
        rotate, num_far = later.rotation(), later.length - scheme.window
        places = slice(later.first_query, later.length)
        shift = scheme.window - scheme.window // scheme.group
        part = attend_causal(
            rotate(later.query, places, group=scheme.group, shift=shift),
            later.placed(Placement(later.table, scheme.group), slice(0, num_far)),
            later.value[:, :, :num_far],
            later.scaling,
        )
        return (part,)

    return attend_near_and_far(scheme.window, far, inputs)
