"""A window of recent tokens, merged with what else a query sees: the frame of windowed kernels.

LambdaShaped, CacheSinks, GroupedNeighbour and Rectified score the last `window` tokens at their
true distance, and differ in which keys beyond it are seen and how those are rotated. They give
that far part; this module computes the near one and merges, so no key is scored twice and no
(queries, keys) tensor exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch

from lce_core.attention.flash import attend_all, attend_causal, attend_window
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import Partial, merge_rows
from lce_core.attention.placement import Placement

_SEGMENT = 2048
"""Queries handled together where the work is linear: temporaries stay in the processor's cache."""

Far = Callable[[AttentionInputs], Iterable[Partial]]
"""Attention beyond the window: called with the queries that have left a token behind; gives the
parts of consecutive queries."""


def attend_near_and_far(window: int, far: Far, inputs: AttentionInputs) -> torch.Tensor:
    """Attention output (batch, heads, queries, head_dim).

    Args:
      window: recent tokens at their true distance, the query's own included.
      far: what lies beyond; not called where no query has left its window.
      inputs: all queries and keys.
    """
    near = _attend_near(window, inputs)
    row = max(0, window - inputs.first_query)
    if inputs.length > window:
        later = replace(
            inputs, query=inputs.query[:, :, row:], first_query=inputs.first_query + row
        )
        for part in far(later):
            merge_rows(near, row, part)
            row += part.lse.shape[2]
    return near.output


def _attend_near(window: int, inputs: AttentionInputs) -> Partial:
    """The window, in segments of queries: rotated states of one segment exist at a time."""
    query, rotate = inputs.query, inputs.rotation()
    num_queries = query.shape[2]
    precise = torch.promote_types(query.dtype, torch.float32)
    output = torch.empty_like(query)
    lse = torch.empty(query.shape[:3], dtype=precise, device=query.device)
    step = max(_SEGMENT, 4 * window)  # its rotated keys overlap with those of the one before
    for start in range(0, num_queries, step):
        rows = slice(start, min(start + step, num_queries))
        places = slice(inputs.first_query + rows.start, inputs.first_query + rows.stop)
        seen = slice(max(0, places.start - window + 1), places.stop)
        part = attend_window(
            rotate(query[:, :, rows], places),
            inputs.placed(Placement(inputs.table), seen),
            inputs.value[:, :, seen],
            inputs.scaling,
            window,
        )
        if part.lse.shape[2] == num_queries:
            return part
        output[:, :, rows], lse[:, :, rows] = part.output, part.lse
    return Partial(output, lse)


def attend_first_tokens(
    window: int, num_keys: int, later: AttentionInputs, *, group: int = 1, ceiling: int
) -> Iterator[Partial]:
    """The first tokens of the text, for queries that have left some of them behind.

    The query at position window + n sees n + 1 of them, up to all. Most queries see all, and are
    not rotated: the few keys are rotated back instead.

    Args:
      window: as above.
      num_keys: first tokens.
      later: queries from position `window` on at least, and the keys of all tokens.
      group: the first token p stands at p // group.
      ceiling: the query at position i scores them from min(i, ceiling); those that see all have
        reached it.
    """
    query, rotate, first = later.query, later.rotation(), later.first_query
    num_queries, table = query.shape[2], later.table
    growing = min(num_queries, max(0, window + num_keys - 1 - first))
    if growing:
        out = first + growing - window
        positions = torch.arange(first, first + growing, device=query.device)
        yield attend_causal(
            rotate(query[:, :, :growing], positions.clamp(max=ceiling)),
            later.placed(Placement(table, group), slice(0, out)),
            later.value[:, :, :out],
            later.scaling,
        )
    if growing == num_queries:  # there may be fewer tokens than places
        return
    keys = later.placed(Placement(table, group, ceiling), slice(0, num_keys))
    values = later.value[:, :, :num_keys]
    for start in range(growing, num_queries, _SEGMENT):
        rows = slice(start, start + _SEGMENT)
        yield attend_all(query[:, :, rows], keys, values, later.scaling)
