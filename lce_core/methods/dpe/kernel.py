"""Kernel of DPE: attention to a window, merged with attention to far keys at coarse positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

import torch

from lce_core.attention.flash import attend_causal
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import Partial
from lce_core.attention.placement import Placement
from lce_core.attention.rotation import Rotation
from lce_core.attention.windowed import attend_near_and_far
from lce_core.methods.dpe import DimensionWise
from lce_core.rope import RopeTable


@dataclass(frozen=True)
class Coarse(Placement):
    """Rotates each frequency pair of a key to the key's position divided by the pair's scale."""

    scales: tuple[int, ...] = ()
    """Number of tokens that share a position, for each frequency pair."""

    def rotate(
        self, keys: torch.Tensor, seen: slice, part: tuple[int, int] = (0, 1)
    ) -> torch.Tensor:
        return _rotated(keys, seen, self.table, self.scales, part)


def attend(scheme: DimensionWise, inputs: AttentionInputs) -> torch.Tensor:
    """Return the attention output of DimensionWise (batch, heads, queries, head_dim).

    Before its window, the query at position p sees keys 0..p - window. This is causal attention
    whose last query sees all far keys.
    """

    def far(later: AttentionInputs) -> tuple[Partial]:
        places, num_far = slice(later.first_query, later.length), later.length - scheme.window
        table, scales = later.table, scheme.scales
        part = attend_causal(
            _rotated(later.query, places, table, scales, later.part, window=scheme.window),
            later.placed(Coarse(table, scales=scales), slice(0, num_far)),
            later.value[:, :, :num_far],
            later.scaling,
        )
        return (part,)

    return attend_near_and_far(scheme.window, far, inputs)


def _rotated(
    states: torch.Tensor,
    places: slice,
    table: RopeTable,
    scales: tuple[int, ...],
    part: tuple[int, int],
    *,
    window: int = 0,
) -> torch.Tensor:
    """Rotate pair i of the token at position p to p // scales[i] + window - window // scales[i].

    Neighbouring pairs with equal scales are rotated together.
    """
    turned, pairs = states.clone(), len(scales)
    for first, last, own, scale in _runs(table, scales):
        halves = slice(first, last), slice(pairs + first, pairs + last)
        some = torch.cat([states[..., half] for half in halves], dim=-1)
        shift = window - window // scale
        some = Rotation(own, some, part)(some, places, group=scale, shift=shift)
        for half, values in zip(halves, some.chunk(2, dim=-1), strict=True):
            turned[..., half] = values
    return turned


@lru_cache(maxsize=8)
def _runs(table: RopeTable, scales: tuple[int, ...]) -> tuple[tuple[int, int, RopeTable, int], ...]:
    """Return runs of pairs with equal scales: first pair, last pair + 1, their table, scale.

    The tables are the same objects in every call, because caches of cosines use them as keys.
    """

    def runs() -> Iterator[tuple[int, int, RopeTable, int]]:
        first = 0
        for scale, members in groupby(scales):
            last = first + len(list(members))
            own = replace(table, inv_freq=table.inv_freq[..., first:last])
            yield first, last, own, scale
            first = last

    return tuple(runs())
