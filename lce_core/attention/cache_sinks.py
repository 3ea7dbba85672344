"""Kernel of CacheSinks: merge windowed attention with attention to the sinks.

Cost: queries x (window + num_sinks) pairs, linear memory. Sinks keep their position; once the text
is longer than the cache, every query is scored from the cache's last position. The key-value cache
itself keeps all tokens: the scores equal those of a cache that drops tokens, its memory does not.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import Partial
from lce_core.attention.schemes import CacheSinks
from lce_core.attention.windowed import attend_first_tokens, attend_near_and_far


def attend(scheme: CacheSinks, inputs: AttentionInputs) -> torch.Tensor:
    """Return the attention output (batch, heads, queries, head_dim)."""

    def far(later: AttentionInputs) -> Iterator[Partial]:
        last = scheme.num_sinks + scheme.window - 1
        return attend_first_tokens(scheme.window, scheme.num_sinks, later, ceiling=last)

    return attend_near_and_far(scheme.window, far, inputs)
