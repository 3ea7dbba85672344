"""Kernel of DPE: attention to a window, merged with attention to far keys at coarse positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

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
    """Return the attention output (batch, heads, queries, head_dim).

    Before its window, the query at position p sees keys 0..p - window: causal attention whose last
    query sees all far keys.
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
    """Rotate pair i of the token at position p to p // scales[i] + window - window // scales[i]."""
    of_pairs = _on(states.device, scales)
    positions = torch.arange(places.start, places.stop, device=states.device)[:, None] // of_pairs
    return Rotation(table, states, part)(states, positions + (window - window // of_pairs))


@lru_cache(maxsize=8)
def _on(device: torch.device, scales: tuple[int, ...]) -> torch.Tensor:
    # Cached, because a copy to a GPU would make every call wait for it.
    return torch.tensor(scales, device=device)
