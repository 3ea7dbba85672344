"""Kernel of Rectified: merge windowed attention with causal attention at the rectified distance.

Cost: one causal pass plus queries x window pairs, linear memory. Without a leak, the distance
beyond the window is constant: far keys stay unrotated and queries are rotated by that distance.
With a leak, distances grow by 1 / leak per token: frequencies are divided by the leak and queries
are rotated `(leak - 1) * window` positions ahead, because (i + (leak - 1) * window - j) / leak =
window + (i - j - window) / leak.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch

from lce_core.attention.flash import attend_causal
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import Partial
from lce_core.attention.placement import Placement
from lce_core.attention.schemes import Rectified
from lce_core.attention.windowed import attend_near_and_far
from lce_core.rope import RopeTable


def attend(scheme: Rectified, inputs: AttentionInputs) -> torch.Tensor:
    """Return the attention output (batch, heads, queries, head_dim)."""

    def far(later: AttentionInputs) -> tuple[Partial]:
        query, num_far = later.query, later.length - scheme.window
        keys = later.key[:, :, :num_far]
        if scheme.leak is None:
            query = later.rotation()(query, slice(scheme.window, scheme.window + 1))
        else:
            ahead = (scheme.leak - 1) * scheme.window
            table = _slowed(later.table, scheme.leak)
            places = slice(later.first_query + ahead, later.length + ahead)
            query = later.rotation(table)(query, places)
            keys = later.placed(Placement(table), slice(0, num_far))
        return (attend_causal(query, keys, later.value[:, :, :num_far], later.scaling),)

    return attend_near_and_far(scheme.window, far, inputs)


@lru_cache(maxsize=4)
def _slowed(table: RopeTable, leak: int) -> RopeTable:
    # Cached, because cosines and rotated keys are shared by the identity of their table.
    return replace(table, inv_freq=table.inv_freq / leak)
