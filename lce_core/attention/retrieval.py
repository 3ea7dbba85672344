"""Kernel of BlockRetrieval: landmark attention in use, over blocks that landmarks select.

The text is cut into chunks by position. Within its chunk a query attends as in training. Of the
blocks before the chunk each query and head takes the `top_k` whose landmarks score highest, and
attends to their tokens too, gated by their landmarks. What a query sees is a function of its
position alone, so one pass, chunks of any size and single tokens give the same numbers.

Positions are those of `top_k + 1` slots of a block each, then the chunk: no distance is longer
than those of training. While landmarks are compared, the `top_k` most recent blocks lie in slots
1.. at their true distance and all older ones in slot 0. The j-th of the selected blocks, in the
order of the text and counted from 0, then goes to slot j, or j + 1 if it is one of the recent.
Distances alone matter, so keys are rotated by their place in the block, queries by their distance
from a slot.

Landmarks are compared by their exact scores rounded once to float32, in every dtype: what is
rotated is not rounded back, and products are taken in float64. Scores that are then equal are a
tie, and the earlier block wins. The landmarks of the first layer are all alike and always tie; a
product in their own precision would leave the choice between them to the order of its sums, which
differs between one pass and chunks.

Cost of a query: one score per block before its chunk, and `top_k` blocks. Queries are handled in
segments of chunks, so memory grows with the text and no (queries, keys) tensor exists; the blocks
themselves are read by `lce_core.attention.dispatch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from lce_core.attention.dispatch import read_blocks
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.landmark import raise_scores, scores_of
from lce_core.attention.rotation import Rotation
from lce_core.attention.schemes import BlockRetrieval
from lce_core.rope import RopeTable

_ELEMENTS = 1 << 24
"""Scores and states of one segment of queries that exist at one time; one chunk's at least."""


class _Segment(NamedTuple):
    """Queries first..stop of the text: some of one chunk, or all of `num_chunks` chunks."""

    start: int
    """Start of the first one's chunk."""
    first: int
    stop: int
    num_chunks: int


def attend(scheme: BlockRetrieval, inputs: AttentionInputs) -> torch.Tensor:
    """Attention output (batch, heads, queries, head_dim)."""
    query, key, value, scaling = inputs.query, inputs.key, inputs.value, inputs.scaling
    first_query, length, kv_heads = inputs.first_query, inputs.length, key.shape[1]
    batch, heads, _, head_dim = query.shape
    rotate = Rotation(inputs.table, query)
    memory = _Memory(scheme, key, value, inputs.table, rotate, scaling)
    width = memory.num_blocks + scheme.chunk + scheme.top_k * (scheme.block + 3 * head_dim)
    rows = _ELEMENTS // (batch * heads * width)
    outputs = []
    for segment in _segments(first_query, length, scheme.chunk, rows):
        start, first, stop, num_chunks = segment
        some = query[:, :, first - first_query : stop - first_query].unflatten(1, (kv_heads, -1))
        some = some.unflatten(3, (num_chunks, -1))
        near = key[:, :, None, start:stop].unflatten(3, (num_chunks, -1))
        places = slice(first - start, first - start + some.shape[4])
        own = scores_of(rotate(some, places), rotate(near, slice(near.shape[4])), scaling)
        own = raise_scores(own, places.start, scheme.block)
        shown = value[:, :, None, start:stop].unflatten(3, (num_chunks, -1))
        if stop <= scheme.chunk:
            found = own.softmax(dim=-1).to(value.dtype) @ shown
        else:
            gates, read = memory.read(some, segment)
            weights = torch.cat((own, gates), dim=-1).softmax(dim=-1).to(value.dtype)
            present, past = weights.split((own.shape[-1], scheme.top_k), dim=-1)
            found = present @ shown + (past[..., None, :] @ read).squeeze(-2)
        outputs.append(found.flatten(3, 4).flatten(1, 2))
    # In the memory order of tokens, heads, elements, in which models read.
    return torch.cat([part.transpose(1, 2) for part in outputs], dim=1).transpose(1, 2)


def _segments(first: int, stop: int, chunk: int, rows: int) -> Iterator[_Segment]:
    """All queries in order; several chunks together as far as `rows` queries allow."""
    while first < stop:
        start = first // chunk * chunk
        num_chunks = max(1, min(rows, stop - first) // chunk) if first == start else 1
        end = min(start + num_chunks * chunk, stop)
        yield _Segment(start, first, end, num_chunks)
        first = end


class _Memory:
    """The blocks before the last chunk, which queries may look back at."""

    def __init__(
        self,
        scheme: BlockRetrieval,
        key: torch.Tensor,
        value: torch.Tensor,
        table: RopeTable,
        rotate: Rotation,
        scaling: float,
    ) -> None:
        self.scheme, self.rotate, self.scaling = scheme, rotate, scaling
        block = scheme.block
        before = (key.shape[2] - 1) // scheme.chunk * scheme.chunk
        self.num_blocks = before // block
        self.keys = key[:, :, :before].unflatten(2, (-1, block))
        self.values = value[:, :, :before].unflatten(2, (-1, block))
        landmarks = self.keys[..., -1, :].double()
        last = torch.tensor([block - 1], device=key.device)
        self.landmarks = Rotation(table, landmarks)(landmarks, last)

    def read(self, query: torch.Tensor, segment: _Segment) -> tuple[torch.Tensor, torch.Tensor]:
        """What the queries' landmarks select.

        Args:
          query: (batch, kv_heads, heads of each, chunks, queries, head_dim), not rotated.
          segment: where they are.

        Returns:
          Scores (..., queries, top_k) of the selected landmarks, -inf where there are fewer blocks,
          and what is read from each block (..., queries, top_k, head_dim).
        """
        block, top_k, chunk = self.scheme.block, self.scheme.top_k, self.scheme.chunk
        numbers = torch.arange(segment.num_chunks, device=query.device)
        seen = (segment.start + numbers * chunk) // block  # blocks before each chunk
        precise = query.to(torch.promote_types(query.dtype, torch.float32))
        turned = []
        for slot in range(top_k + 1):
            back = segment.first - segment.start + (top_k + 1 - slot) * block
            turned.append(self.rotate(precise, slice(back, back + query.shape[4])))
        slotted = torch.stack(turned, dim=5)
        picks = self._select(slotted, seen)
        recent = picks >= seen[:, None, None] - top_k
        slots = torch.arange(top_k, device=picks.device) + recent
        asking = slotted.gather(5, slots[..., None].expand(*slots.shape, query.shape[-1]))
        asking = asking.to(query.dtype)
        return read_blocks(asking, picks, self.keys, self.values, self.rotate, self.scaling)

    def _select(self, slotted: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Indices (..., queries, top_k), ascending, of the blocks to read; -1 for none, first.

        Args:
          slotted: queries (batch, kv_heads, heads of each, chunks, queries, top_k + 1, head_dim),
            turned for each slot.
          seen: (chunks,) blocks before each chunk.
        """
        top_k = self.scheme.top_k
        # Places for top_k blocks before the first, so that every chunk has as many recent ones.
        landmarks = torch.nn.functional.pad(self.landmarks, (0, 0, top_k, 0))
        scores = _exact_scores(slotted[..., 0, :], landmarks[:, :, None, None])
        for slot in range(1, top_k + 1):
            at = seen + slot - 1
            found = _exact_scores(slotted[..., slot, :], landmarks[:, :, None, at, None])
            scores.scatter_(-1, at[:, None, None].expand_as(found), found)
        columns = torch.arange(landmarks.shape[2], device=seen.device)
        absent = (columns < top_k) | (columns >= top_k + seen[:, None])
        scores.masked_fill_(absent[:, None], -torch.inf)
        picks = []
        for _ in range(top_k):
            best, pick = scores.max(dim=-1, keepdim=True)  # the first of equal ones
            scores.scatter_(-1, pick, -torch.inf)
            picks.append((pick - top_k).masked_fill(best == -torch.inf, -1))
        return torch.cat(picks, dim=-1).sort(dim=-1).values


def _exact_scores(query: torch.Tensor, landmark: torch.Tensor) -> torch.Tensor:
    """Float32 products (..., queries, landmarks) of states and float64 landmarks."""
    return (query.double() @ landmark.transpose(-1, -2)).float()
