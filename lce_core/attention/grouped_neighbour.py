"""Kernel of GroupedNeighbour: a windowed pass and a causal pass over floored positions, merged.

Cost: one causal pass plus queries x window pairs, linear memory. Keys beyond the window form a
bottom-right causal triangle: the query at position p sees keys 0..p - window.
"""

from __future__ import annotations

import torch

from lce_core.attention.flash import attend_causal
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import Partial
from lce_core.attention.schemes import GroupedNeighbour
from lce_core.attention.windowed import attend_near_and_far


def attend(scheme: GroupedNeighbour, inputs: AttentionInputs) -> torch.Tensor:
    """Attention output (batch, heads, queries, head_dim)."""

    def far(later: AttentionInputs) -> tuple[Partial]:
        rotate, num_far = later.rotation(), later.length - scheme.window
        groups = torch.arange(later.length, device=later.query.device) // scheme.group
        shift = scheme.window - scheme.window // scheme.group
        part = attend_causal(
            rotate(later.query, groups[later.first_query :] + shift),
            rotate(later.key[:, :, :num_far], groups[:num_far]),
            later.value[:, :, :num_far],
            later.scaling,
        )
        return (part,)

    return attend_near_and_far(scheme.window, far, inputs)
