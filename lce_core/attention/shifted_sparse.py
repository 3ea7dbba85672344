"""Kernel of ShiftedSparse: fold blocks of tokens into the batch and call SDPA on them.

No softmax spans two blocks, so no results are merged and SDPA's own gradients apply. Queries and
keys are rotated before the row is cut into blocks, so positions count from the start of the row.
"""

from __future__ import annotations

import torch

from lce_core.attention.causal import attend_square
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.schemes import ShiftedSparse

States = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Sinks = torch.Tensor | None
"""Sinks of some heads, (heads,); None for models without sinks."""


def attend(scheme: ShiftedSparse, inputs: AttentionInputs) -> torch.Tensor:
    """Return the attention output (batch, heads, tokens, head_dim); there may be no cache."""
    length, first_query = inputs.length, inputs.first_query
    assert not first_query, "a training scheme, used with a cache"
    assert scheme.group % 2 == 0, f"blocks of {scheme.group} tokens"
    assert length % scheme.group == 0, f"{length} tokens in blocks of {scheme.group}"
    rotate, scaling = inputs.rotation(), inputs.scaling
    states = (rotate(inputs.query, slice(length)), rotate(inputs.key, slice(length)), inputs.value)
    plain, shifted = _halves_of_heads(states)
    own, others = _split_sinks(inputs.sinks, plain[0].shape[1])
    outputs = (
        _attend_blocks(plain, scheme.group, scaling, own),
        _attend_shifted(shifted, scheme.group, scaling, others),
    )
    return torch.cat(outputs, dim=1)


def _halves_of_heads(states: States) -> tuple[States, States]:
    query, key, value = states
    heads, shared = query.shape[1], query.shape[1] // key.shape[1]
    if (heads // 2) % shared:
        # Both halves use the middle key-value head, so neither half has groups of equal size.
        key, value = (part.repeat_interleave(shared, dim=1) for part in (key, value))
        shared = 1
    first = heads // 2
    plain, shifted = zip(
        query.split([first, heads - first], dim=1),
        key.split([first // shared, (heads - first) // shared], dim=1),
        value.split([first // shared, (heads - first) // shared], dim=1),
        strict=True,
    )
    return plain, shifted


def _split_sinks(sinks: Sinks, first: int) -> tuple[Sinks, Sinks]:
    return (None, None) if sinks is None else (sinks[:first], sinks[first:])


def _attend_shifted(states: States, group: int, scaling: float, sinks: Sinks) -> torch.Tensor:
    half, between = group // 2, states[0].shape[2] - group
    first, middle, last = zip(
        *(part.split([half, between, half], dim=2) for part in states), strict=True
    )
    query, key, value = (torch.cat(ends, dim=2) for ends in zip(first, last, strict=True))
    ends = _attend_blocks((query, key, value), half, scaling, sinks)
    if not between:
        return ends
    start, end = ends.split(half, dim=2)
    return torch.cat((start, _attend_blocks(middle, group, scaling, sinks), end), dim=2)


def _attend_blocks(states: States, size: int, scaling: float, sinks: Sinks) -> torch.Tensor:
    query, key, value = (_fold(part, size) for part in states)
    output = attend_square(query, key, value, scaling, sinks)
    rows = output.transpose(1, 2).unflatten(0, (states[0].shape[0], -1))
    unfolded: torch.Tensor = rows.flatten(1, 2).transpose(1, 2)
    return unfolded


def _fold(states: torch.Tensor, size: int) -> torch.Tensor:
    """Fold blocks into the batch: (batch x blocks, heads, size, head_dim).

    No copy is made if memory order is (batch, tokens, heads, head_dim), as projections write it.
    """
    blocks = states.transpose(1, 2).unflatten(1, (-1, size))
    folded: torch.Tensor = blocks.flatten(0, 1).transpose(1, 2)
    return folded
