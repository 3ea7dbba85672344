"""Kernels that merge attention to a window of recent tokens with attention to farther keys.

LambdaShaped, CacheSinks, GroupedNeighbour and Rectified score the last `window` tokens at their
true distance. They differ in the keys before the window, called far keys: each kernel computes only
the attention to these, and `attend_near_and_far` adds the window. No key is scored twice, and no
(queries, keys) tensor exists. Beyond queries x window pairs, LambdaShaped and CacheSinks score
queries x first tokens, the other two all far keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import torch

from lce_core.attention.flash import attend_all, attend_causal, attend_window
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import Partial, merge_rows, with_sinks
from lce_core.attention.placement import Placement
from lce_core.attention.schemes import CacheSinks, GroupedNeighbour, LambdaShaped, Rectified
from lce_core.rope import RopeTable

_SEGMENT = 2048
"""Number of queries that a CPU processes together, so that temporary tensors fit into its cache. A
GPU processes all queries together, because it needs time to start each operation."""

Far = Callable[[AttentionInputs], Iterable[Partial]]
"""A function that attends to the far keys, for the queries that have some. It yields one Partial
for each group of consecutive queries."""


def lambda_shaped(scheme: LambdaShaped, inputs: AttentionInputs) -> torch.Tensor:
    """Score first tokens that have left the window from position `window` to position 0."""
    first, window = scheme.num_global, scheme.window

    def far(later: AttentionInputs) -> Iterator[Partial]:
        return _attend_first_tokens(window, first, later, group=first, ceiling=window)

    return attend_near_and_far(window, far, inputs)


def cache_sinks(scheme: CacheSinks, inputs: AttentionInputs) -> torch.Tensor:
    """Score sinks, which keep their positions, from the last position of the scheme's cache.

    The real key-value cache stores all tokens: StreamingLLM's scores without its smaller memory.
    """

    def far(later: AttentionInputs) -> Iterator[Partial]:
        last = scheme.num_sinks + scheme.window - 1
        return _attend_first_tokens(scheme.window, scheme.num_sinks, later, ceiling=last)

    return attend_near_and_far(scheme.window, far, inputs)


def grouped_neighbour(scheme: GroupedNeighbour, inputs: AttentionInputs) -> torch.Tensor:
    """Score keys 0..p - window from position p, both at positions divided by `group`.

    This is causal attention whose last query sees all far keys.
    """

    def far(later: AttentionInputs) -> tuple[Partial]:
        rotate, num_far = later.rotation(), later.length - scheme.window
        places = slice(later.first_query, later.length)
        shift = scheme.window - scheme.window // scheme.group
        part = attend_causal(
            rotate(later.query, places, group=scheme.group, shift=shift),
            later.placed(Placement(later.table, scheme.group), slice(0, num_far)),
            later.value[:, :, :num_far],
            later.scaling,
        )
        return (part,)

    return attend_near_and_far(scheme.window, far, inputs)


def rectified(scheme: Rectified, inputs: AttentionInputs) -> torch.Tensor:
    """Score far keys at a constant distance or, with a leak, at distances that grow slowly.

    With a leak, frequencies are divided by it and queries rotated `(leak - 1) * window` positions
    ahead, because (i + (leak - 1) * window - j) / leak = window + (i - j - window) / leak.
    """

    def far(later: AttentionInputs) -> tuple[Partial]:
        query, num_far = later.query, later.length - scheme.window
        keys = later.key[:, :, :num_far]
        if scheme.leak is None:
            query = later.rotation()(query, slice(scheme.window, scheme.window + 1))
        else:
            ahead = (scheme.leak - 1) * scheme.window
            table = _slowed(later.table, scheme.leak)
            places = slice(later.first_query + ahead, later.length + ahead)
            query = later.rotation(table)(query, places)
            keys = later.placed(Placement(table), slice(0, num_far))
        return (attend_causal(query, keys, later.value[:, :, :num_far], later.scaling),)

    return attend_near_and_far(scheme.window, far, inputs)


@lru_cache(maxsize=4)
def _slowed(table: RopeTable, leak: int) -> RopeTable:
    # Return the same object in every call, because caches of cosines and rotated keys use the table
    # object as their key.
    return replace(table, inv_freq=table.inv_freq / leak)


def attend_near_and_far(window: int, far: Far, inputs: AttentionInputs) -> torch.Tensor:
    """Attend to the window, then merge in the keys before it; (batch, heads, queries, head_dim).

    `far` is not called if no query has keys before the window. Sinks count among the window's keys.
    """
    near = with_sinks(_attend_near(window, inputs), inputs.sinks)
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
    query, rotate = inputs.query, inputs.rotation()
    num_queries = query.shape[2]
    precise = torch.promote_types(query.dtype, torch.float32)
    output = torch.empty_like(query)
    lse = torch.empty(query.shape[:3], dtype=precise, device=query.device)
    # Consecutive segments both rotate the `window` keys at their boundary; long segments do so
    # rarely.
    step = max(_segment(query), 4 * window)
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


def _segment(query: torch.Tensor) -> int:
    return _SEGMENT if query.device.type == "cpu" else query.shape[2]


def _attend_first_tokens(
    window: int, num_keys: int, later: AttentionInputs, *, group: int = 1, ceiling: int
) -> Iterator[Partial]:
    """Attend to those of the first `num_keys` tokens of the text that lie before the window.

    `later` has the queries from position `window` on and the keys of all tokens. The query at
    position window + n sees n + 1 of the first tokens, at most `num_keys`. Most queries see all of
    them and are scored as if at position `ceiling`: rotating the few keys back is cheaper than
    rotating these queries. First token p is rotated to p // group. Every query that sees all first
    tokens must have reached the ceiling.
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
    # A short text may have fewer tokens than `num_keys`.
    if growing == num_queries:
        return
    keys = later.placed(Placement(table, group, ceiling), slice(0, num_keys))
    values = later.value[:, :, :num_keys]
    for start in range(growing, num_queries, _segment(query)):
        rows = slice(start, start + _segment(query))
        yield attend_all(query[:, :, rows], keys, values, later.scaling)
