"""Dual Chunk Attention against its formula: three positions of each query, in numpy."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.attention.causal import full_causal
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.schemes import FullCausal
from lce_core.methods.dca import DualChunk, attend
from lce_core.rope import RopeTable
from tests.support.oracles.placed_attention import SCALING, attended, in_chunks, random_states

TABLE = RopeTable(np.array([1.0, 0.2, 0.01]))
SIZES = st.tuples(st.integers(1, 8), st.integers(0, 14)).map(
    lambda n: DualChunk(chunk=2 * n[0] + n[1], window=n[0])
)


def expected(parts: tuple[torch.Tensor, ...], chunk: int, window: int) -> np.ndarray:
    """The formula of section 3: P_k = j mod c, and P_q for the same, the next, any later chunk."""
    places = np.arange(parts[0].shape[2])
    c = chunk - window
    own, following = places % c, np.minimum(places % c + c, chunk)
    apart = places[:, None] // c - places // c
    queries = [own, following, np.full_like(places, chunk)]
    kinds = np.clip(apart, 0, 2)
    return attended(parts, TABLE.inv_freq, queries, kinds, places % c)


@given(SIZES, st.integers(1, 80), st.data())
def test_the_kernel_is_the_formula_for_any_sizes_and_pieces(scheme, tokens, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, tokens - 1)), max_size=4)) - {tokens})
    parts = random_states(tokens)
    output = in_chunks(attend, scheme, parts, TABLE, cuts)
    torch.testing.assert_close(
        output,
        torch.from_numpy(expected(parts, scheme.chunk, scheme.window)),
        rtol=1e-10,
        atol=1e-10,
    )


@given(SIZES, st.data())
def test_up_to_one_chunk_it_is_rope(scheme, data):
    tokens = data.draw(st.integers(1, scheme.chunk - scheme.window))
    parts = random_states(tokens)
    rope = full_causal(FullCausal(), AttentionInputs(*parts, TABLE, 0, SCALING))
    output = attend(scheme, AttentionInputs(*parts, TABLE, 0, SCALING))
    torch.testing.assert_close(output, rope, rtol=1e-12, atol=1e-12)
