"""Kernels of landmark attention: GroupedSoftmax in training, BlockRetrieval at inference.

The last token of each block is its landmark. In training (`grouped_softmax`), a query distributes
its attention over the tokens of its own block and the landmarks of earlier blocks, and the weight
of a landmark over the tokens of its block. With scores s, the weight of token j of an earlier block
b is

    exp(s[landmark of b]) / Z * exp(s[j]) / sum over tokens l of b of exp(s[l])

where Z is the sum of exp(s) over the visible tokens of the query's own block and the landmarks of
earlier blocks. "Tokens of b" excludes the landmark, which is never visible itself. An ordinary
softmax gives the same weights if the gate s[landmark of b] - logsumexp of s over tokens of b is
added to the scores of b.

At inference (`block_retrieval`), the text is cut into chunks at fixed positions. Within its chunk a
query attends as in training. From the blocks before the chunk, each query and head selects the
`top_k` blocks whose landmarks score highest, and also attends to their tokens, weighted by the
landmarks. Chunks do not depend on how the text is split into forward passes.

Positions come from `top_k + 1` slots of one block each, followed by the chunk, so no distance
exceeds those of training. While landmarks are compared, the `top_k` most recent blocks occupy slots
1.. at their true distance, and all older blocks occupy slot 0. Then the j-th selected block,
counted from 0 in text order, is read from slot j, or from slot j + 1 if it is one of the recent
blocks. Only distances matter, so keys are rotated by their position in the block and queries by
their distance from a slot.

The landmark scores that select blocks keep at least float32 states, are multiplied in float64 and
rounded once to float32; of equal scores the earlier block wins. In the first layer all landmarks
are identical, so blocks in slot 0 always tie. In lower precision the choice would depend on the
order of summation, which changes with the split into forward passes.
"""

import torch
from torch import Tensor

from lce_core.attention.chunks import Run, runs
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.rotation import Rotation
from lce_core.attention.schemes import BlockRetrieval, GroupedSoftmax

_ELEMENTS = 1 << 24
"""Maximum number of elements (scores and states) in memory at one time: 64 MiB in float32."""
_ROOM_OF_GPUS = 32
"""Factor of this limit on GPUs (2 GiB in float32), where starting operations takes time."""
_TILE = 64
"""Maximum number of queries in a tile; all queries of a tile read the same block."""


def grouped_softmax(scheme: GroupedSoftmax, inputs: AttentionInputs) -> Tensor:
    rotate, first, value = inputs.rotation(), inputs.first_query, inputs.value
    query = rotate(inputs.query, slice(first, inputs.length))
    key = rotate(inputs.key, slice(inputs.length))
    grouped = query.unflatten(1, (key.shape[1], -1))
    raised = raise_scores(scores_of(grouped, key[:, :, None], inputs.scaling), first, scheme.block)
    return (raised.softmax(dim=-1).to(value.dtype) @ value[:, :, None]).flatten(1, 2)


def scores_of(query: Tensor, key: Tensor, scaling: float) -> Tensor:
    scores = query @ key.transpose(-1, -2)
    return scores.to(torch.promote_types(scores.dtype, torch.float32)) * scaling


def raise_scores(scores: Tensor, first_query: int, block: int) -> Tensor:
    """Return scores (..., queries, keys) whose softmax is the grouped softmax."""
    num_queries, num_keys = scores.shape[-2:]
    places = torch.arange(first_query, first_query + num_queries, device=scores.device)[:, None]
    columns = torch.arange(num_keys, device=scores.device)
    whole = num_keys // block
    blocks = scores[..., : whole * block].unflatten(-1, (whole, block))
    # The gate of a block, zero for the query's own block, whose tokens keep their own scores.
    gates = blocks[..., -1] - blocks[..., :-1].logsumexp(dim=-1)
    gates = gates.masked_fill(columns[:whole] >= places // block, 0.0)
    raised = (blocks + gates[..., None]).flatten(-2)
    raised = torch.cat((raised, scores[..., whole * block :]), dim=-1)
    return raised.masked_fill((columns > places) | (columns % block == block - 1), -torch.inf)


def block_retrieval(scheme: BlockRetrieval, inputs: AttentionInputs) -> Tensor:
    query, key, value, scaling = inputs.query, inputs.key, inputs.value, inputs.scaling
    first_query, length, kv_heads = inputs.first_query, inputs.length, key.shape[1]
    batch, heads, _, head_dim = query.shape
    rotate = Rotation(inputs.table, query)
    memory = _Memory(scheme, inputs, rotate)
    # Numbers per query: scores of landmarks and of the chunk, and for each selected block its
    # scores and three states.
    width = memory.num_blocks + scheme.chunk + scheme.top_k * (scheme.block + 3 * head_dim)
    limit = _ELEMENTS * (1 if query.device.type == "cpu" else _ROOM_OF_GPUS)
    rows = limit // (batch * heads * width)
    outputs = []
    for segment in runs(first_query, length, scheme.chunk, rows):
        start, first, stop, num_chunks = segment
        some = query[:, :, first - first_query : stop - first_query].unflatten(1, (kv_heads, -1))
        some = some.unflatten(3, (num_chunks, -1))
        near = key[:, :, None, start:stop].unflatten(3, (num_chunks, -1))
        places = segment.places
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


class _Memory:
    """All blocks before the text's last chunk; a query selects only blocks before its own chunk."""

    def __init__(self, scheme: BlockRetrieval, inputs: AttentionInputs, rotate: Rotation) -> None:
        self.scheme, self.rotate, self.scaling = scheme, rotate, inputs.scaling
        block, key, value = scheme.block, inputs.key, inputs.value
        before = (key.shape[2] - 1) // scheme.chunk * scheme.chunk
        self.num_blocks = before // block
        self.keys = key[:, :, :before].unflatten(2, (-1, block))
        self.values = value[:, :, :before].unflatten(2, (-1, block))
        landmarks = self.keys[..., -1, :].double()
        last = torch.full((1,), block - 1, device=key.device)
        self.landmarks = Rotation(inputs.table, landmarks)(landmarks, last)

    def read(self, query: Tensor, segment: Run) -> tuple[Tensor, Tensor]:
        """Select `top_k` blocks for each query by their landmarks' scores; attend to each block.

        `query` is (batch, kv_heads, query heads per key-value head, chunks, queries, head_dim),
        unrotated. Returns what `read_blocks` returns, with top_k picks for each query.
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

    def _select(self, slotted: Tensor, seen: Tensor) -> Tensor:
        """Return the selected blocks' indices (..., queries, top_k), ascending; -1 for no block.

        `slotted` queries have a dimension top_k + 1 before head_dim, rotated for each slot.
        """
        top_k = self.scheme.top_k
        # Pad with top_k empty blocks at the start, so that every chunk has top_k recent blocks.
        landmarks = torch.nn.functional.pad(self.landmarks, (0, 0, top_k, 0))
        scores = _exact_scores(slotted[..., 0, :], landmarks[:, :, None, None])
        at = seen[:, None] + torch.arange(top_k, device=seen.device)
        recent = slotted[..., 1:, :].transpose(-2, -3)
        found = _exact_scores(recent, landmarks[:, :, None, at, None]).squeeze(-1).transpose(-1, -2)
        scores.scatter_(-1, at[:, None].expand_as(found), found)
        columns = torch.arange(landmarks.shape[2], device=seen.device)
        absent = (columns < top_k) | (columns >= top_k + seen[:, None])
        scores.masked_fill_(absent[:, None], -torch.inf)
        best = _best_by_max if scores.device.type == "cpu" else _best_by_sort
        return best(scores, top_k).sort(dim=-1).values - top_k


def _best_by_max(scores: Tensor, number: int) -> Tensor:
    """Return the columns of each row's `number` highest scores; `number` - 1 for no column.

    Scores of -inf, such as those of the first `number` columns, are never selected. Of equal scores
    the earlier column wins. Selected scores are overwritten.
    """
    picks = []
    for _ in range(number):
        # max() returns the first of equal scores.
        best, pick = scores.max(dim=-1, keepdim=True)
        scores.scatter_(-1, pick, -torch.inf)
        picks.append(pick.masked_fill(best == -torch.inf, number - 1))
    return torch.cat(picks, dim=-1)


def _best_by_sort(scores: Tensor, number: int) -> Tensor:
    """Do the same in fewer operations; sorting all scores would be slow on a CPU."""
    values, order = scores.sort(dim=-1, descending=True, stable=True)
    chosen, best = order[..., :number], values[..., :number]
    return chosen.masked_fill(best == -torch.inf, number - 1)


def _exact_scores(query: Tensor, landmark: Tensor) -> Tensor:
    return (query.double() @ landmark.transpose(-1, -2)).float()


def read_blocks(
    query: Tensor,
    picks: Tensor,
    keys: Tensor,
    values: Tensor,
    rotate: Rotation,
    scaling: float,
) -> tuple[Tensor, Tensor]:
    """Return the attention of each query to each block that the query selected.

    Gathering the selected blocks for every query would copy each block many times. Instead, queries
    are sorted by block and cut into tiles that read one block.

    Args:
      query: (batch, kv_heads, ..., picks, head_dim) one copy of each query per selected block,
        rotated by the query's distance from the start of that block.
      picks: (batch, kv_heads, ..., picks) index of the selected block, -1 for none.
      keys: (batch, kv_heads, blocks, block, head_dim), unrotated, a block's landmark last.

    Returns:
      The scores of the blocks' landmarks, -inf where no block was selected; and the attention
      output (batch, kv_heads, ..., picks, head_dim) within each block except its landmark.
    """
    batch, kv_heads, num_blocks, block, head_dim = keys.shape
    owners = torch.arange(batch * kv_heads, device=picks.device).view(batch, kv_heads, 1)
    wanted = (owners * num_blocks + picks.flatten(2).clamp(min=0)).flatten()
    tile = max(1, min(_TILE, len(wanted) // (batch * kv_heads * num_blocks)))

    # A group is the queries of one block.
    groups, order = wanted.sort()
    num_groups = batch * kv_heads * num_blocks
    firsts = torch.searchsorted(groups, torch.arange(num_groups + 1, device=picks.device))
    counts = firsts.diff()
    tiles = (counts + tile - 1) // tile
    # `shift` is the group's first row among the padded tiles minus its first row in sorted order,
    # so sorted row i goes to tile row i + shift.
    last_tiles = tiles.cumsum(0)
    shift = (last_tiles - tiles) * tile - firsts[:-1]
    places = torch.arange(len(groups), device=picks.device) + shift[groups]
    indices = torch.arange(_num_tiles(last_tiles, len(groups), tile), device=picks.device)
    read_block = torch.searchsorted(last_tiles, indices, right=True).clamp(max=num_groups - 1)
    owner = read_block // num_blocks
    chosen = (owner // kv_heads, owner % kv_heads, read_block % num_blocks)

    rows = query.new_zeros(len(read_block) * tile, head_dim)
    rows[places] = query.reshape(-1, head_dim)[order]
    scores = scores_of(rows.view(-1, tile, head_dim), rotate(keys[chosen], slice(block)), scaling)
    weights = scores[..., :-1].softmax(dim=-1).to(values.dtype)
    found = (weights @ values[chosen][:, :-1]).flatten(0, 1)

    gates = torch.empty(len(groups), dtype=scores.dtype, device=picks.device)
    gates[order] = scores[..., -1].flatten()[places]
    read = torch.empty_like(query, memory_format=torch.contiguous_format).view(-1, head_dim)
    read[order] = found[places]
    return gates.view_as(picks).masked_fill(picks < 0, -torch.inf), read.view_as(query)


def _num_tiles(last_tiles: Tensor, num_queries: int, tile: int) -> int:
    """Return the number of tiles; on a GPU an upper bound, because reading it would wait."""
    if last_tiles.device.type == "cpu":
        return int(last_tiles[-1])
    return min(num_queries, num_queries // tile + len(last_tiles))
