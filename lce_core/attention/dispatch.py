"""Landmark attention at inference: attend from each query to the blocks that it selected.

Gathering the selected blocks for every query would copy each block many times. Instead, queries are
sorted by block and cut into tiles that read one block, with two small matrix products each.
"""

from __future__ import annotations

import torch

from lce_core.attention.landmark import scores_of
from lce_core.attention.rotation import Rotation

_TILE = 64
"""Maximum number of queries in a tile; all queries of a tile read the same block."""


def read_blocks(
    query: torch.Tensor,
    picks: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    rotate: Rotation,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention of each query to each block that the query selected.

    Args:
      query: (batch, kv_heads, ..., picks, head_dim) one copy of each query per selected block,
        rotated by the query's distance from the start of that block.
      picks: (batch, kv_heads, ..., picks) index of the selected block, -1 for none.
      keys: (batch, kv_heads, blocks, block, head_dim), unrotated, a block's landmark last.
      values: same shape as keys.

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


def _num_tiles(last_tiles: torch.Tensor, num_queries: int, tile: int) -> int:
    """Return the number of tiles; on a GPU an upper bound, because reading it would wait."""
    if last_tiles.device.type == "cpu":
        return int(last_tiles[-1])
    return min(num_queries, num_queries // tile + len(last_tiles))
