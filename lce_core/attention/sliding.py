"""Attention inside a sliding window, for layers of a base model that have one.

Blocks of queries attend to the keys that any of them sees, under a mask. Each (queries, keys) mask
covers less than three windows, so memory is linear in the text. With sinks, inference uses
`lce_core.attention.flash`, whose log-sum-exp the sinks need.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from lce_core.attention.causal import sink_as_key
from lce_core.attention.flash import attend_window
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import with_sinks
from lce_core.attention.placement import Placement
from lce_core.attention.schemes import SlidingWindow


def sliding_window(scheme: SlidingWindow, inputs: AttentionInputs) -> torch.Tensor:
    window, first, length = scheme.window, inputs.first_query, inputs.length
    # Only keys that some query sees. Rotating all keys of a cache would copy it for each token.
    start = max(0, first - window + 1)
    keys = inputs.placed(Placement(inputs.table), slice(0, length))[:, :, start:]
    values = inputs.value[:, :, start:]
    queries = inputs.rotation()(inputs.query, slice(first, length))
    if inputs.sinks is not None and not torch.is_grad_enabled():
        part = attend_window(queries, keys, values, inputs.scaling, window)
        return with_sinks(part, inputs.sinks).output
    outputs = []
    for begin in range(first, length, window):
        end = min(begin + window, length)
        seen = slice(max(0, begin - window + 1) - start, end - start)
        places = torch.arange(seen.start + start, end, device=queries.device)
        distance = torch.arange(begin, end, device=queries.device)[:, None] - places
        mask = (distance >= 0) & (distance < window)
        rows = queries[:, :, begin - first : end - first]
        states = rows, keys[:, :, seen], values[:, :, seen]
        if inputs.sinks is not None:
            states = sink_as_key(*states, inputs.scaling, inputs.sinks)
            mask = pad(mask, (1, 0), value=True)
        output = scaled_dot_product_attention(
            *states,
            attn_mask=mask,
            scale=inputs.scaling,
            enable_gqa=queries.shape[1] != keys.shape[1],
        )
        outputs.append(output[..., : values.shape[-1]])
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)
