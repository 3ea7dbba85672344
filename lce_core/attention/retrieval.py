"""Kernel of BlockRetrieval: landmark attention in use, over blocks that landmarks select.

The text is cut into chunks by position. Within its chunk a query attends as in training. Of the
blocks before the chunk each query and head takes the `top_k` whose landmarks score highest, and
attends to their tokens too, gated by their landmarks. What a query sees is a function of its
position alone, so one pass, chunks of any size and single tokens give the same numbers.

Positions are those of `top_k + 1` slots of a block each, then the chunk: the longest distance is
one that training has seen. While landmarks are compared, the `top_k` most recent blocks lie in
slots 1.. at their true distance and all older ones in slot 0. The j-th of the selected blocks, in
the order of the text and counted from 0, then goes to slot j, or j + 1 if it is one of the recent.

Distances alone matter, so a block's keys are rotated by their place in the block, once, and the
query by its distance from the slot. Work for a query: one score per block and `top_k` blocks;
memory: the turned keys, and the gathered blocks of so many queries as `_GATHERED` allows.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from lce_core.attention.landmark import gates_of, raise_scores, scores_of, weigh
from lce_core.attention.rotation import Rotation
from lce_core.attention.schemes import BlockRetrieval
from lce_core.rope import RopeTable

_GATHERED = 1 << 24
"""Elements of selected keys, and of values, that exist at one time; one query's at least."""
_ROUNDINGS = 16
"""Landmarks are a tie where they differ by as many roundings of a product of random vectors."""


def attend(
    scheme: BlockRetrieval,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    table: RopeTable,
    first_query: int,
    scaling: float,
) -> torch.Tensor:
    """Attention output (batch, heads, queries, head_dim); arguments as in AttentionScheme."""
    length = key.shape[2]
    rotate = Rotation(table, scheme.chunk + (scheme.top_k + 1) * scheme.block, query)
    memory = _Memory(scheme, key, value, rotate, scaling)
    batch, heads, _, head_dim = query.shape
    rows = max(1, _GATHERED // (batch * heads * scheme.top_k * scheme.block * head_dim))
    outputs = []
    for start, first, stop in _spans(first_query, length, scheme.chunk, rows):
        some = query[:, :, first - first_query : stop - first_query]
        near = rotate(some, slice(first - start, stop - start))
        keys = rotate(key[:, :, start:stop], slice(stop - start))
        own = raise_scores(scores_of(near, keys, scaling), first - start, scheme.block)
        if start == 0:
            outputs.append(weigh(own.softmax(dim=-1), value[:, :, :stop]))
            continue
        far, values = memory.read(some, start // scheme.block, first - start)
        weights = torch.cat((far, own), dim=-1).softmax(dim=-1)
        remembered, present = weights.split((far.shape[-1], own.shape[-1]), dim=-1)
        seen = (remembered.to(value.dtype)[..., None, :] @ values).squeeze(-2)
        outputs.append(seen + weigh(present, value[:, :, start:stop]))
    # In the memory order of tokens, heads, elements, in which models read.
    return torch.cat([part.transpose(1, 2) for part in outputs], dim=1).transpose(1, 2)


def _spans(first: int, stop: int, chunk: int, rows: int) -> Iterator[tuple[int, int, int]]:
    """(start of the chunk, first, stop) of runs of at most `rows` queries of one chunk."""
    while first < stop:
        start = first // chunk * chunk
        end = min(start + chunk, first + rows, stop)
        yield start, first, end
        first = end


class _Memory:
    """All blocks that any query of this call may look back at."""

    def __init__(
        self,
        scheme: BlockRetrieval,
        key: torch.Tensor,
        value: torch.Tensor,
        rotate: Rotation,
        scaling: float,
    ) -> None:
        self.scheme, self.rotate, self.scaling = scheme, rotate, scaling
        block = scheme.block
        before = (key.shape[2] - 1) // scheme.chunk * scheme.chunk
        cut = (before // block, block)
        self.keys = key[:, :, :before].unflatten(2, cut)
        self.values = value[:, :, :before].unflatten(2, cut)
        self.landmarks = rotate(self.keys[..., -1, :], torch.tensor([block - 1], device=key.device))

    def read(
        self, query: torch.Tensor, num_blocks: int, place: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attends to the blocks that each query and head selects.

        Args:
          query: (batch, heads, queries, head_dim), not rotated, of one chunk.
          num_blocks: blocks before the chunk.
          place: place of the first query in the chunk.

        Returns:
          Raised scores (batch, heads, queries, selected tokens), -inf for landmarks, and the values
          (batch, heads, queries, selected tokens, head_dim).
        """
        block, top_k = self.scheme.block, min(self.scheme.top_k, num_blocks)
        turned = []
        for slot in range(top_k + 1):
            back = place + (top_k + 1 - slot) * block
            turned.append(self.rotate(query, slice(back, back + query.shape[2])))
        slotted = torch.stack(turned, dim=3)
        picks = self._select(slotted, num_blocks, top_k)
        slots = torch.arange(top_k, device=picks.device) + (picks >= num_blocks - top_k)
        asking = slotted.take_along_dim(slots[..., None], dim=3)
        keys = self.rotate(self._gather(self.keys, picks), slice(block))
        scores = (keys @ asking[..., None]).squeeze(-1)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32)) * self.scaling
        raised = scores + gates_of(scores)
        raised[..., -1] = -torch.inf
        return raised.flatten(-2), self._gather(self.values, picks).flatten(-3, -2)

    def _select(self, slotted: torch.Tensor, num_blocks: int, top_k: int) -> torch.Tensor:
        """Indices (batch, heads, queries, top_k), ascending, of the blocks to read.

        Args:
          slotted: queries (batch, heads, queries, top_k + 1, head_dim), turned for each slot.
        """
        landmarks = self.landmarks[:, :, :num_blocks]
        older = scores_of(slotted[..., 0, :], landmarks[:, :, :-top_k], self.scaling)
        recent = [
            scores_of(slotted[..., slot, :], landmarks[:, :, [slot - top_k - 1]], self.scaling)
            for slot in range(1, top_k + 1)
        ]
        scores = torch.cat([older, *recent], dim=-1)
        # Landmarks of the first layer are all alike and those in slot 0 score the same, so rounding
        # would decide, and rounding differs between one pass and chunks. The earliest wins.
        queries = slotted[..., 0, :].to(scores.dtype).norm(dim=-1, keepdim=True)
        longest = landmarks.to(scores.dtype).norm(dim=-1).amax(dim=-1)[..., None, None]
        longest = longest.repeat_interleave(queries.shape[1] // longest.shape[1], dim=1)
        rounding = torch.finfo(slotted.dtype).eps * self.scaling * slotted.shape[-1] ** -0.5
        tie = _ROUNDINGS * rounding * queries * longest
        picks = []
        for _ in range(top_k):
            best = scores >= scores.amax(dim=-1, keepdim=True) - tie
            picks.append(best.byte().argmax(dim=-1, keepdim=True))
            scores.scatter_(-1, picks[-1], -torch.inf)
        return torch.cat(picks, dim=-1).sort(dim=-1).values

    def _gather(self, blocks: torch.Tensor, picks: torch.Tensor) -> torch.Tensor:
        """Blocks (batch, heads, queries, top_k, block, head_dim) of the queries' choice."""
        batch, heads = picks.shape[:2]
        shared = heads // blocks.shape[1]
        texts = torch.arange(batch, device=picks.device)[:, None, None, None]
        of_heads = torch.arange(heads, device=picks.device)[:, None, None] // shared
        return blocks[texts, of_heads, picks]
