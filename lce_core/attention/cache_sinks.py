"""Kernel of CacheSinks: a windowed pass and the sinks at their place in the cache, merged.

Cost: queries x (window + num_sinks) pairs, linear memory. Sinks keep their position; the
query is scored from the last place of the cache once the text is longer. The key-value cache itself
keeps all tokens: scores are those of a cache that drops the ones between, memory is not.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import Partial
from lce_core.attention.schemes import CacheSinks
from lce_core.attention.windowed import attend_first_tokens, attend_near_and_far


def attend(scheme: CacheSinks, inputs: AttentionInputs) -> torch.Tensor:
    """Attention output (batch, heads, queries, head_dim)."""

    def far(later: AttentionInputs) -> Iterator[Partial]:
        last = scheme.num_sinks + scheme.window - 1
        return attend_first_tokens(scheme.window, scheme.num_sinks, later, ceiling=last)

    return attend_near_and_far(scheme.window, far, inputs)
