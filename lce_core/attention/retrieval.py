"""Kernel of BlockRetrieval: landmark attention at inference, over blocks selected by landmarks.

The text is cut into chunks at fixed positions. Within its chunk a query attends as in training.
From the blocks before the chunk, each query and head selects the `top_k` blocks whose landmarks
score highest, and also attends to their tokens, weighted by the landmarks. Chunks do not depend on
how the text is split into forward passes, so one pass over the text, several passes and passes of
single tokens give the same numbers.

Positions come from `top_k + 1` slots of one block each, followed by the chunk, so no distance
exceeds those of training. While landmarks are compared, the `top_k` most recent blocks occupy slots
1.. at their true distance, and all older blocks occupy slot 0. Then the j-th selected block,
counted from 0 in text order, is read from slot j, or from slot j + 1 if it is one of the recent
blocks. Only distances matter, so keys are rotated by their position in the block and queries by
their distance from a slot.

The landmark scores that select blocks do not use the model's dtype: rotated states keep at least
float32, products are float64, and scores are rounded once to float32. If scores are equal, the
earlier block wins. In the first layer all landmarks are identical, so blocks in slot 0 always tie.
In lower precision the choice between them would depend on the order of summation, which changes
with the split into forward passes.

Each query costs one score per block before its chunk, the attention within its chunk, and the
attention to `top_k` blocks. Queries are processed in segments of chunks, so memory grows linearly
with the text and no (queries, keys) tensor exists. `lce_core.attention.dispatch` reads the blocks.
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
"""Maximum number of tensor elements (scores and states) in memory at one time. A segment has as
many chunks of queries as fit, at least one."""
_ROOM_OF_GPUS = 8
"""Factor of this limit on GPUs, where starting the operations of a small segment takes longer than
their work."""


class _Segment(NamedTuple):
    """Queries first..stop - 1 of the text: part of one chunk, or all of `num_chunks` chunks."""

    start: int
    """Start of the chunk that contains the first query."""
    first: int
    stop: int
    num_chunks: int


def attend(scheme: BlockRetrieval, inputs: AttentionInputs) -> torch.Tensor:
    """Return the attention output of BlockRetrieval (batch, heads, queries, head_dim)."""
    query, key, value, scaling = inputs.query, inputs.key, inputs.value, inputs.scaling
    first_query, length, kv_heads = inputs.first_query, inputs.length, key.shape[1]
    batch, heads, _, head_dim = query.shape
    rotate = Rotation(inputs.table, query)
    memory = _Memory(scheme, key, value, inputs.table, rotate, scaling)
    # Numbers per query: scores of landmarks and of the chunk, and for each selected block its
    # scores and three states.
    width = memory.num_blocks + scheme.chunk + scheme.top_k * (scheme.block + 3 * head_dim)
    limit = _ELEMENTS * (1 if query.device.type == "cpu" else _ROOM_OF_GPUS)
    rows = limit // (batch * heads * width)
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
    # Concatenate in the memory order (tokens, heads, elements), which models read.
    return torch.cat([part.transpose(1, 2) for part in outputs], dim=1).transpose(1, 2)


def _segments(first: int, stop: int, chunk: int, rows: int) -> Iterator[_Segment]:
    """Split queries first..stop - 1 into segments, in order.

    A segment consists of whole chunks with at most `rows` queries in total, or of a single (whole
    or partial) chunk.
    """
    while first < stop:
        start = first // chunk * chunk
        num_chunks = max(1, min(rows, stop - first) // chunk) if first == start else 1
        end = min(start + num_chunks * chunk, stop)
        yield _Segment(start, first, end, num_chunks)
        first = end


class _Memory:
    """All blocks before the text's last chunk, from which queries select.

    A query selects only blocks before its own chunk.
    """

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
        last = torch.full((1,), block - 1, device=key.device)
        self.landmarks = Rotation(table, landmarks)(landmarks, last)

    def read(self, query: torch.Tensor, segment: _Segment) -> tuple[torch.Tensor, torch.Tensor]:
        """Select `top_k` blocks for each query by their landmarks' scores; attend to each block.

        Args:
          query: (batch, kv_heads, query heads per key-value head, chunks, queries, head_dim),
            unrotated.
          segment: range of the queries.

        Returns:
          The scores of the selected blocks' landmarks (..., queries, top_k), -inf where no block is
            left to select; and the attention output within each block (..., queries, top_k,
            head_dim).
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
        reading = slotted.gather(5, slots[..., None].expand(*slots.shape, query.shape[-1]))
        reading = reading.to(query.dtype)
        return read_blocks(reading, picks, self.keys, self.values, self.rotate, self.scaling)

    def _select(self, slotted: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Return the selected blocks' indices (..., queries, top_k), ascending; -1 for no block.

        Args:
          slotted: queries (batch, kv_heads, query heads per key-value head, chunks, queries, top_k
            + 1, head_dim), rotated for each slot.
          seen: (chunks,) number of blocks before each chunk.
        """
        top_k = self.scheme.top_k
        # Pad with top_k empty blocks at the start, so that every chunk has top_k recent blocks.
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
            # max() returns the first of equal scores, so the earlier block wins a tie.
            best, pick = scores.max(dim=-1, keepdim=True)
            scores.scatter_(-1, pick, -torch.inf)
            picks.append((pick - top_k).masked_fill(best == -torch.inf, -1))
        return torch.cat(picks, dim=-1).sort(dim=-1).values


def _exact_scores(query: torch.Tensor, landmark: torch.Tensor) -> torch.Tensor:
    """Return scores (..., queries, landmarks), computed in float64 and rounded once to float32."""
    return (query.double() @ landmark.transpose(-1, -2)).float()
