"""LaMPE against its formula: three regions with positions of their own, in numpy."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.attention.windowed import attend
from lce_core.methods.lampe import Mapped
from lce_core.rope import RopeTable
from tests.support.oracles.placed_attention import attended, in_chunks, random_states

TABLE = RopeTable(np.array([1.0, 0.2, 0.01]))


@given(st.data())
def test_the_kernel_is_the_formula_for_any_sizes_and_pieces(data):
    length = data.draw(st.integers(2, 80))
    window = data.draw(st.integers(1, length // 2))
    outer, mapped = data.draw(st.integers(window + 1, length)), data.draw(st.integers(1, 100))
    tokens = data.draw(st.integers(1, length))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, tokens - 1)), max_size=4)) - {tokens})
    parts, places = random_states(tokens), np.arange(tokens)
    mapping = np.array([p * mapped // (length - 1) for p in range(length)])
    # The mapped distance from token w to the first is w - 1. The distance of `outer` tokens is 1
    # more than the mapped one of the token before.
    first = window - 1 - mapping[window]
    second = outer - 1 - (mapping[outer - 1] + first)
    apart = places[:, None] - places
    kinds = (apart >= window).astype(int) + (apart >= outer)
    queries = [places, mapping[:tokens] + first, places - second]
    keys = np.stack([places, mapping[:tokens], places])
    expected = attended(parts, TABLE.inv_freq, queries, kinds, keys)
    scheme = Mapped(window=window, length=length, positions=mapped, outer=outer)
    output = in_chunks(attend, scheme, parts, TABLE, cuts)
    torch.testing.assert_close(output, torch.from_numpy(expected), rtol=1e-10, atol=1e-10)
