"""Full causal attention with rotation inside, for tables that give each head its own base."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from lce_core.attention.flash import attend_causal
from lce_core.attention.rotation import Rotation
from lce_core.attention.schemes import FullCausal
from lce_core.rope import RopeTable


def attend(
    scheme: FullCausal,  # noqa: ARG001 - the signature of every kernel
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    table: RopeTable,
    first_query: int,
    scaling: float,
) -> torch.Tensor:
    """Attention output (batch, heads, queries, head_dim); arguments as in AttentionScheme.

    Differentiable where no cached keys precede the queries, which is how training runs.
    """
    length = key.shape[2]
    rotate = Rotation(table, length, query)
    query = rotate(query, slice(first_query, length))
    key = rotate(key, slice(length))
    if first_query:
        return attend_causal(query, key, value, scaling).output
    gqa = query.shape[1] != key.shape[1]
    return scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scaling, enable_gqa=gqa
    )
