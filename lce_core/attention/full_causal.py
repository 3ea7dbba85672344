"""Kernel of FullCausal: causal attention with rotation, for tables with one base per head."""

from __future__ import annotations

import torch

from lce_core.attention.flash import attend_causal
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.placement import Placement
from lce_core.attention.schemes import FullCausal
from lce_core.attention.squares import attend_square


def attend(_scheme: FullCausal, inputs: AttentionInputs) -> torch.Tensor:
    """Return the attention output (batch, heads, queries, head_dim).

    The result is differentiable if no cached keys precede the queries, as in training.
    """
    length = inputs.length
    query = inputs.rotation()(inputs.query, slice(inputs.first_query, length))
    key = inputs.placed(Placement(inputs.table), slice(0, length))
    if inputs.first_query:
        return attend_causal(query, key, inputs.value, inputs.scaling).output
    return attend_square(query, key, inputs.value, inputs.scaling)
