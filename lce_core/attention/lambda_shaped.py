"""Kernel of LambdaShaped: a windowed pass and the first tokens, merged.

Cost: queries x (window + num_global) pairs, linear memory. The first tokens are scored as
if at position 0 and the query at `window`, wherever they have left the window.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from lce_core.attention.partial import Partial
from lce_core.attention.rotation import Rotation
from lce_core.attention.schemes import LambdaShaped
from lce_core.attention.windowed import attend_first_tokens, attend_near_and_far
from lce_core.rope import RopeTable


def attend(
    scheme: LambdaShaped,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    table: RopeTable,
    first_query: int,
    scaling: float,
) -> torch.Tensor:
    """Attention output (batch, heads, queries, head_dim); arguments as in AttentionScheme."""
    rotate = Rotation(table, key.shape[2], query)

    def far(later: torch.Tensor, first: int) -> Iterator[Partial]:
        places = torch.zeros(scheme.num_global, dtype=torch.long, device=query.device)
        return attend_first_tokens(
            scheme.window, places, scheme.window, later, key, value, rotate, first, scaling
        )

    return attend_near_and_far(scheme.window, far, query, key, value, rotate, first_query, scaling)
