"""Strategy: the block sizes of GPUs are forced on the CPU, and the CPU's own are the oracle."""

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.attention import chunks, landmark, placement, rotation
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.rotation import Rotation
from lce_core.methods import dca
from lce_core.methods.dca import DualChunk
from lce_core.rope import RopeTable

HEADS, HEAD_DIM = 2, 8
TABLE = RopeTable(1e4 ** -np.linspace(0, 1, HEAD_DIM // 2))
META = torch.device("meta")


@given(
    start=st.integers(0, 9000),
    tokens=st.integers(1, 5000),
    group=st.integers(1, 9),
    shift=st.integers(0, 3000),
    back=st.booleans(),
)
def test_large_blocks_rotate_like_small_ones_to_the_last_bit(start, tokens, group, shift, back):
    states = torch.randn(1, HEADS, tokens, HEAD_DIM, generator=torch.Generator().manual_seed(0))
    places, rules = slice(start, start + tokens), {"group": group, "shift": shift, "back": back}
    rotate: Any = Rotation(TABLE, states)
    expected = rotate(states, places, **rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rotation, "_KEPT", OrderedDict())
        patch.setattr(Rotation, "_block_size", lambda *_: 4096)
        assert torch.equal(rotate(states, places, **rules), expected)


@given(st.integers(1, 9), st.integers(0, 9), st.integers(1, 3), st.integers(1, 120), st.data())
def test_chunks_computed_together_give_what_single_chunks_give(window, more, texts, tokens, data):
    scheme = DualChunk(chunk=2 * window + more, window=window)
    first = data.draw(st.integers(0, tokens - 1))
    generator = torch.Generator().manual_seed(2)
    states = torch.randn(3, texts, HEADS, tokens, HEAD_DIM, generator=generator).double()
    query, key, value = states[0, :, :, first:], states[1], states[2]
    inputs = AttentionInputs(query, key, value, TABLE, first, HEAD_DIM**-0.5)
    single = dca.attend(scheme, inputs)
    with pytest.MonkeyPatch.context() as patch:
        for module in (chunks, placement):
            patch.setattr(module, "most_together", lambda states: states.shape[-2])
        together = dca.attend(scheme, inputs)
    torch.testing.assert_close(together, single, rtol=1e-12, atol=1e-12)


@given(st.integers(1, 4), st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1))
def test_sorting_selects_the_blocks_that_repeated_maxima_select(top_k, rows):
    scores = torch.tensor(rows, dtype=torch.float32)
    scores[scores == 0] = -torch.inf
    scores[:, :top_k] = -torch.inf
    by_sort = landmark._best_by_sort(scores, top_k)
    by_max = landmark._best_by_max(scores.clone(), top_k)
    assert torch.equal(by_sort, by_max)
    assert ((by_max == top_k - 1) | (scores.gather(1, by_max) > 0)).all()


@given(seed=st.integers(0, 2**32 - 1), queries=st.integers(1, 200), blocks=st.integers(1, 7))
def test_tiles_that_no_query_needs_change_nothing(seed, queries, blocks):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(1, HEADS, queries, HEAD_DIM, generator=generator)
    keys, values = torch.randn(2, 1, HEADS, blocks, 4, HEAD_DIM, generator=generator)
    picks = torch.randint(-1, blocks, (1, HEADS, queries), generator=generator)
    given = query, picks, keys, values, Rotation(TABLE, query), 0.3
    exact = landmark.read_blocks(*given)
    with pytest.MonkeyPatch.context() as patch:
        number = landmark._num_tiles

        def bound(last_tiles: torch.Tensor, num_queries: int, tile: int) -> int:
            most = number(last_tiles.to(META), num_queries, tile)
            assert number(last_tiles, num_queries, tile) <= most <= num_queries
            return most

        patch.setattr(landmark, "_num_tiles", bound)
        bounded = landmark.read_blocks(*given)
    for found, expected in zip(bounded, exact, strict=True):
        assert torch.equal(found, expected)
