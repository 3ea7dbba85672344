"""DCA, STRING, DPE, LaMPE and Jet-Long against their formulas in numpy: positions of each query, or
a distance for each pair of elements."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.attention import windowed
from lce_core.evidence import LLAMA2_7B
from lce_core.methods import METHODS, dca
from lce_core.methods.dca import DualChunk
from lce_core.methods.dpe import PUBLISHED, DimensionWise
from lce_core.methods.jet_long import Grouped
from lce_core.methods.lampe import Mapped
from lce_core.methods.string import Shifted
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from tests.support.oracles.placed_attention import (
    SCALING,
    States,
    attended,
    in_chunks,
    random_states,
)

TABLE = RopeTable(np.array([1.0, 0.2, 0.01]))
CHUNKS = st.tuples(st.integers(1, 8), st.integers(0, 14)).map(
    lambda n: DualChunk(chunk=2 * n[0] + n[1], window=n[0])
)
SHIFTS = st.integers(1, 40).flatmap(
    lambda window: st.integers(0, window).map(lambda shifted: Shifted(window, shifted))
)
DIMENSIONS = st.builds(
    DimensionWise, st.integers(1, 40), st.tuples(*3 * [st.sampled_from([1, 2, 3, 4, 16, 128])])
)
GROUPS = st.builds(Grouped, st.integers(1, 40), group=st.integers(1, 20))


@st.composite
def maps(draw: st.DrawFn) -> Mapped:
    length = draw(st.integers(2, 80))
    window = draw(st.integers(1, length // 2))
    outer, positions = draw(st.integers(window + 1, length)), draw(st.integers(1, 100))
    return Mapped(window=window, length=length, positions=positions, outer=outer)


def of_chunks(scheme: DualChunk, parts: States) -> np.ndarray:
    """The formula of section 3: P_k = j mod c, and P_q for the same, the next, any later chunk."""
    places = np.arange(parts[0].shape[2])
    c = scheme.chunk - scheme.window
    own, following = places % c, np.minimum(places % c + c, scheme.chunk)
    apart = places[:, None] // c - places // c
    queries = [own, following, np.full_like(places, scheme.chunk)]
    kinds = np.clip(apart, 0, 2)
    return attended(parts, TABLE.inv_freq, queries, kinds, places % c)


def shifted(scheme: Shifted, parts: States) -> np.ndarray:
    places = np.arange(parts[0].shape[2])
    far = places[:, None] - places >= scheme.window
    queries = [places, places - scheme.window + scheme.shifted]
    return attended(parts, TABLE.inv_freq, queries, far.astype(int), places)


def mapped(scheme: Mapped, parts: States) -> np.ndarray:
    window, outer, places = scheme.window, scheme.outer, np.arange(parts[0].shape[2])
    mapping = np.array([p * scheme.positions // (scheme.length - 1) for p in range(80)])
    # The mapped distance from token w to the first is w - 1. The distance of `outer` tokens is 1
    # more than the mapped one of the token before.
    first = window - 1 - mapping[window]
    second = outer - 1 - (mapping[outer - 1] + first)
    apart = places[:, None] - places
    kinds = (apart >= window).astype(int) + (apart >= outer)
    mapping = mapping[places]
    queries = [places, mapping + first, places - second]
    return attended(parts, TABLE.inv_freq, queries, kinds, np.stack([places, mapping, places]))


def grouped(scheme: Grouped, parts: States) -> np.ndarray:
    places = np.arange(parts[0].shape[2])
    positions = np.stack([places, places // scheme.group])
    far = places[:, None] - places >= scheme.window
    return attended(parts, TABLE.inv_freq, list(positions), far.astype(int), positions)


def by_dimension(scheme: DimensionWise, parts: States) -> np.ndarray:
    places = np.arange(parts[0].shape[2])
    apart = [distances(scale, scheme.window, places) for scale in scheme.scales]
    return by_pair(np.stack(apart), TABLE.inv_freq, parts)


def by_pair(
    apart: np.ndarray, inv_freq: np.ndarray, parts: States, scaling: float = SCALING
) -> np.ndarray:
    """Attention of the definition: (batch, heads, tokens, head_dim), without any rotation.

    `apart` are the distances (pairs, queries, keys).
    """
    query, key, value = (part.numpy() for part in parts)
    shared, pairs = query.shape[1] // key.shape[1], len(inv_freq)
    key, value = key.repeat(shared, axis=1), value.repeat(shared, axis=1)
    plain = query[..., 2 * pairs :] @ key[..., 2 * pairs :].swapaxes(-1, -2)
    for pair, speed in enumerate(inv_freq):
        first, second = (
            states[..., pair] + 1j * states[..., pairs + pair] for states in (query, key)
        )
        products = first[..., :, None] * second.conj()[..., None, :]
        plain = plain + (products * np.exp(1j * apart[pair] * speed)).real
    exponents = np.where(np.tri(query.shape[2], dtype=bool), plain * scaling, -np.inf)
    powers = np.exp(exponents - exponents.max(-1, keepdims=True))
    attended: np.ndarray = powers / powers.sum(-1, keepdims=True) @ value
    return attended


def distances(scale: int, window: int, places: np.ndarray) -> np.ndarray:
    """Distances (queries, keys) of a pair with this scale."""
    query, key = places[:, None], places[None]
    coarse = query // scale - key // scale + window - window // scale
    found: np.ndarray = np.where(query - key < window, query - key, coarse)
    return found


@pytest.mark.parametrize(
    ("sizes", "kernel", "formula"),
    [
        (CHUNKS, dca.attend, of_chunks),
        (SHIFTS, windowed.attend, shifted),
        (DIMENSIONS, windowed.attend, by_dimension),
        (maps(), windowed.attend, mapped),
        (GROUPS, windowed.attend, grouped),
    ],
    ids=["dca", "string", "dpe", "lampe", "jet_long"],
)
@given(st.integers(1, 80), st.data())
def test_the_kernel_is_the_formula_for_any_sizes_and_pieces(sizes, kernel, formula, tokens, data):
    scheme = data.draw(sizes)
    parts = random_states(min(tokens, getattr(scheme, "length", tokens)))
    tokens = parts[0].shape[2]
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, tokens - 1)), max_size=4)) - {tokens})
    output = in_chunks(kernel, scheme, parts, TABLE, cuts)
    expected = torch.from_numpy(formula(scheme, parts))
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


@given(st.integers(1, 80), st.integers(16, 64), st.integers(1, 15), st.data())
def test_the_freq_form_of_jet_long_is_the_authors_formula(tokens, trained, window, data):
    geometry = RopeGeometry(16, 16, 4, 2, theta=100.0, trained_context=trained)
    method = METHODS.parse({"name": "jet_long", "form": "freq", "window": window}, "test")
    lengths = ContextLengths(trained, 4 * trained, tokens)
    table, scheme = method.rope_table(geometry, lengths), method.attention(geometry, lengths)
    parts = random_states(tokens, dim=16)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, tokens - 1)), max_size=4)) - {tokens})
    scaling = SCALING * table.attention_factor**2
    output = in_chunks(windowed.attend, scheme, parts, table, cuts, scaling)
    expected = torch.from_numpy(by_frequency(geometry, window, parts))
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


def by_frequency(geometry: RopeGeometry, window: int, parts: States) -> np.ndarray:
    """The authors' attention: far queries, at position p, and far keys turn by `delta` as well."""
    trained, tokens, pairs = geometry.trained_context, parts[0].shape[2], np.arange(8)
    ends = [8 * np.log(trained / (2 * np.pi * turns)) / np.log(100.0) for turns in (32, 1)]
    low, high = max(np.floor(ends[0]), 0), min(np.ceil(ends[1]), 7)
    ramp = np.clip((pairs - low) / max(high - low, 0.001), 0, 1)
    scale = max(1.0, (tokens - window) / (trained - window))
    base = 100.0 ** (-pairs / 8)
    delta = -base * ramp * (1 - 1 / scale)
    places = np.arange(tokens)
    query = np.outer(base, places) + np.outer(delta, np.maximum(places - window, 0))
    key = np.outer(base + delta, places)
    apart = places[:, None] - places
    far = (query[:, :, None] - key[:, None]) / base[:, None, None]
    return by_pair(
        np.where(apart <= window, apart, far), base, parts, SCALING * (0.1 * np.log(scale) + 1)
    )


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


@given(st.sampled_from([*PUBLISHED]), st.integers(0, 9000), st.integers(0, 9000))
def test_published_scales_give_the_distances_of_both_forms_of_the_reference(name, query, key):
    # In decoding the reference places a key at its distance; in prefill it places queries and keys.
    method = METHODS.parse({"name": "dpe", "scales": name}, "test")
    scheme = method.attention(LLAMA2_7B, ContextLengths(4096, 32768, 32768))
    key, query = sorted((key, query))
    found = scheme.distance(query, key)
    if query - key < 1024:
        assert found == query - key
        return
    for group, scale in enumerate(PUBLISHED[name]):
        decoded = query // scale - key // scale + (1024 - 1024 // scale)
        prefilled = (query // scale + 1024 - 1024 / scale) - key // scale
        assert decoded == prefilled
        assert isinstance(found, tuple)
        assert found[8 * group : 8 * group + 8] == 8 * (decoded,)


def test_pairs_are_divided_evenly_among_the_groups():
    geometry = RopeGeometry(32, 32, 3, 3, 1e4, 128)
    method = METHODS.parse({"name": "dpe", "scales": [2, 3, 4]}, "test")
    scheme = method.attention(geometry, ContextLengths(128, 512, 512))
    assert scheme == DimensionWise(64, (*6 * (2,), *5 * (3,), *5 * (4,)))
