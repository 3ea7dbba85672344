"""Kernel of LambdaShaped: merge windowed attention with attention to the first tokens.

Cost: queries x (window + num_global) pairs, linear memory. First tokens that have left the window
are scored as if they were at position 0 and the query at position `window`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import Partial
from lce_core.attention.schemes import LambdaShaped
from lce_core.attention.windowed import attend_first_tokens, attend_near_and_far


def attend(scheme: LambdaShaped, inputs: AttentionInputs) -> torch.Tensor:
    """Return the attention output (batch, heads, queries, head_dim)."""

    def far(later: AttentionInputs) -> Iterator[Partial]:
        first = scheme.num_global
        return attend_first_tokens(scheme.window, first, later, group=first, ceiling=scheme.window)

    return attend_near_and_far(scheme.window, far, inputs)
