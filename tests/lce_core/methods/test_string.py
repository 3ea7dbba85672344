"""STRING against its formula: two positions of each query, in numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.attention.windowed import attend
from lce_core.evidence import LLAMA2_7B
from lce_core.methods import METHODS
from lce_core.methods.string import Shifted
from lce_core.rope import ContextLengths, RopeTable
from tests.support.oracles.placed_attention import attended, in_chunks, random_states

TABLE = RopeTable(np.array([1.0, 0.2, 0.01]))
SIZES = st.integers(1, 40).flatmap(
    lambda window: st.integers(0, window).map(lambda shifted: Shifted(window, shifted))
)


@given(SIZES, st.integers(1, 80), st.data())
def test_the_kernel_is_the_formula_for_any_sizes_and_pieces(scheme, tokens, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, tokens - 1)), max_size=4)) - {tokens})
    parts, places = random_states(tokens), np.arange(tokens)
    far = places[:, None] - places >= scheme.window
    queries = [places, places - scheme.window + scheme.shifted]
    expected = attended(parts, TABLE.inv_freq, queries, far.astype(int), places)
    output = in_chunks(attend, scheme, parts, TABLE, cuts)
    torch.testing.assert_close(output, torch.from_numpy(expected), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("parameters", "request_length", "sizes"),
    [
        ({}, 8192, Shifted(2703, shifted=128)),
        ({"shift": 0.25, "window": 512}, 8192, Shifted(2048, shifted=512)),
        ({}, 300, Shifted(99, shifted=99)),
    ],
)
def test_the_shift_follows_the_request(parameters, request_length, sizes):
    method = METHODS.parse({"name": "string", **parameters}, "test")
    assert method.attention(LLAMA2_7B, ContextLengths(4096, 32768, request_length)) == sizes


@given(st.integers(1, 387), st.integers(0, 400), st.integers(0, 400))
def test_a_request_with_less_than_the_window_to_keep_is_not_shifted(length, query, key):
    method = METHODS.parse({"name": "string"}, "test")
    scheme = method.attention(LLAMA2_7B, ContextLengths(4096, 32768, length))
    assert scheme.distance(query, key) == (query - key if key <= query else None)
