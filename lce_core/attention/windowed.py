"""Kernel of NearAndFar: attention to a window of recent tokens, merged with that to farther keys.

No key is scored twice, and no (queries, keys) tensor exists.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial

import torch
from torch import Tensor

from lce_core.attention.chunks import most_together
from lce_core.attention.flash import attend_all, attend_causal, attend_window
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import Partial, merge, with_sinks
from lce_core.attention.placement import Placement, on_line, positions
from lce_core.attention.schemes import Far, NearAndFar
from lce_core.rope import RopeTable

_SEGMENT = 2048
"""Number of queries that a CPU processes together, so that temporary tensors fit into its cache."""

FarKernel = Callable[[AttentionInputs], Iterable[Partial]]
"""Attends to the far keys; yields one Partial for each group of consecutive queries."""


def attend(scheme: NearAndFar, inputs: AttentionInputs) -> Tensor:
    far = scheme.far
    kernel = _attend_all_far if far.first is None else _attend_first_tokens
    return attend_near_and_far(scheme.window, partial(kernel, scheme.window, far), inputs)


def attend_near_and_far(window: int, far: FarKernel, inputs: AttentionInputs) -> Tensor:
    """Attend to the window, then merge in the keys before it; (batch, heads, queries, head_dim).

    `far` is not called if no query has keys before the window. Sinks count among the window's keys.
    """
    near = with_sinks(_attend_near(window, inputs), inputs.sinks)
    _merge_later(near, window, far, inputs)
    return near.output


def _merge_later(near: Partial, position: int, far: FarKernel, inputs: AttentionInputs) -> None:
    row = max(0, position - inputs.first_query)
    if inputs.length > position:
        later = replace(
            inputs, query=inputs.query[:, :, row:], first_query=inputs.first_query + row
        )
        for part in far(later):
            merge(near, row, part)
            row += part.lse.shape[2]


def _attend_near(window: int, inputs: AttentionInputs) -> Partial:
    query, rotate = inputs.query, inputs.rotation()
    num_queries = query.shape[2]
    precise = torch.promote_types(query.dtype, torch.float32)
    output = torch.empty_like(query)
    lse = torch.empty(query.shape[:3], dtype=precise, device=query.device)
    # Consecutive segments both rotate the `window` keys at their boundary; long segments do so
    # rarely.
    step = max(_SEGMENT, most_together(query), 4 * window)
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


def _attend_all_far(window: int, far: Far, later: AttentionInputs) -> Iterator[Partial]:
    """Attend to all keys before the window: causal attention whose last query sees all of them."""
    table, seen = _slowed(later.table, far.slow), slice(0, later.length - window)
    keys = later.key[:, :, seen]
    if far.key.most != 0:  # keys at position 0 stay unrotated
        keys = later.placed(Placement(table, far.key), seen)
    tokens = slice(later.first_query, later.length)
    query = on_line(later.rotation(table), later.query, far.query, tokens)
    if far.beyond is None:
        yield attend_causal(query, keys, later.value[:, :, seen], later.scaling)
        return
    limit, beyond = far.beyond
    part = attend_window(query, keys, later.value[:, :, seen], later.scaling, limit - window)
    _merge_later(part, limit, partial(_attend_all_far, limit, beyond), later)
    yield part


@lru_cache(maxsize=4)
def _slowed(table: RopeTable, slow: tuple[float, ...]) -> RopeTable:
    # Return the same object in every call, because caches of cosines and rotated keys use the table
    # object as their key.
    return table if slow == (1.0,) else replace(table, inv_freq=table.inv_freq / slow)


def _attend_first_tokens(window: int, far: Far, later: AttentionInputs) -> Iterator[Partial]:
    """Attend to those of the first tokens of the text that lie before the window.

    The query at position window + n sees n + 1 of the first tokens. Most queries see all, and are
    at the end of their line: it is cheaper to rotate the few keys back by this position.
    """
    query, first, num_keys, table = later.query, later.first_query, far.first, later.table
    assert num_keys is not None
    num_queries = query.shape[2]
    growing = min(num_queries, max(0, window + num_keys - 1 - first))
    if growing:
        seen = slice(0, first + growing - window)
        places = positions(far.query, slice(first, first + growing), query.device)
        yield attend_causal(
            later.rotation()(query[:, :, :growing], places),
            later.placed(Placement(table, far.key), seen),
            later.value[:, :, seen],
            later.scaling,
        )
    # A short text may have fewer tokens than `num_keys`.
    if growing == num_queries:
        return
    keys = later.placed(Placement(table, far.key, far.query.most), slice(0, num_keys))
    values = later.value[:, :, :num_keys]
    step = max(_SEGMENT, most_together(query))
    for start in range(growing, num_queries, step):
        rows = slice(start, start + step)
        yield attend_all(query[:, :, rows], keys, values, later.scaling)
