"""Kernel of Rectified: a windowed pass and a causal pass at the rectified distance, merged.

Cost: one causal pass plus queries x window pairs, linear memory. At one constant distance far keys
stay unrotated and queries are rotated by that distance. With a leak, distances grow by 1 / leak per
token: both sides rotate by frequencies divided by the leak, queries `(leak - 1) * window` positions
ahead, since (i + (leak - 1) * window - j) / leak = window + (i - j - window) / leak.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from lce_core.attention.flash import attend_causal
from lce_core.attention.partial import Partial
from lce_core.attention.rotation import Rotation
from lce_core.attention.schemes import Rectified
from lce_core.attention.windowed import attend_near_and_far
from lce_core.rope import RopeTable


def attend(
    scheme: Rectified,
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
        keys = key[:, :, :num_far]
        if scheme.leak is None:
            later = rotate(later, torch.tensor([scheme.window], device=query.device))
        else:
            ahead = (scheme.leak - 1) * scheme.window
            slowly = Rotation(_slowed(table, scheme.leak), key.shape[2] + ahead, query)
            later = slowly(later, slice(first + ahead, key.shape[2] + ahead))
            keys = slowly(keys, slice(num_far))
        return (attend_causal(later, keys, value[:, :, :num_far], scaling),)

    return attend_near_and_far(scheme.window, far, query, key, value, rotate, first_query, scaling)


@lru_cache(maxsize=4)
def _slowed(table: RopeTable, leak: int) -> RopeTable:
    # Kept, because cosines are shared between layers by the identity of their table.
    return RopeTable(table.inv_freq / leak)
