"""Kernels against dense float64 attention by relative positions, over shapes and offsets."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lce_core.attention import causal, flash, windowed
from lce_core.attention.flash import attend_all, attend_window
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.partial import Partial, merge
from lce_core.attention.rotary import RequestRotary
from lce_core.attention.rotation import Rotation, check_heads
from lce_core.attention.schemes import (
    CacheSinks,
    FullCausal,
    GroupedNeighbour,
    LambdaShaped,
    Rectified,
)
from lce_core.errors import SpecError
from lce_core.rope import RopeTable
from tests.support.oracles.dense_attention import SCALING, dense, grouped_distance, lambda_distance
from tests.support.oracles.placed_attention import in_chunks, random_states


def table(pairs: int, heads: int | None = None) -> RopeTable:
    inv_freq = 1e4 ** (-np.arange(pairs) / pairs)
    if heads is None:
        return RopeTable(inv_freq)
    return RopeTable(np.stack([inv_freq * (1 + 0.1 * head) for head in range(heads)]))


def cache_distance(window: int, num_sinks: int) -> Callable[[int, int], int | None]:
    """Distances found by filling a cache token by token and reading places off it."""
    places: list[dict[int, int]] = []
    cache: list[int] = []
    for token in range(320):
        cache.append(token)
        if len(cache) > num_sinks + window:
            del cache[num_sinks]
        places.append({kept: place for place, kept in enumerate(cache)})

    def distance(i: int, j: int) -> int | None:
        return places[i][i] - places[i][j] if j in places[i] else None

    return distance


def rectified(window: int, leak: int | None) -> tuple[Rectified, Callable[..., float | None]]:
    def distance(i: int, j: int) -> float | None:
        if j > i:
            return None
        return min(i - j, window) + max(i - j - window, 0) / (math.inf if leak is None else leak)

    return Rectified(window, None if leak is None else (leak,)), distance


CASES: list[Any] = [
    *((LambdaShaped(*n), lambda_distance(*n)) for n in [(16, 4), (8, 10), (200, 10)]),
    *((GroupedNeighbour(*n), grouped_distance(*n)) for n in [(16, 4), (1, 1), (256, 64)]),
    *((CacheSinks(*n), cache_distance(*n)) for n in [(16, 4), (8, 10), (200, 10)]),
    *(rectified(*n) for n in [(16, None), (256, None), (16, 4)]),
]


@pytest.fixture(params=["cpu kernel", "blocked"])
def any_backend(request, monkeypatch) -> str:
    """Runs a test with the CPU kernel, and with the matrix products used where there is none."""
    if request.param == "blocked":
        monkeypatch.setattr(flash, "backend", lambda device, dtype: "blocked")
        monkeypatch.setattr(flash, "_SCORES", 4000)
    return str(request.param)


@pytest.mark.parametrize(("scheme", "distance"), CASES)
def test_a_kernel_equals_dense_attention_in_one_shot_in_chunks_and_token_by_token(
    scheme, distance, any_backend
):
    parts = random_states(70, dim=10)
    rope = table(pairs=4)  # 8 of 10 elements rotate
    expected = dense(*parts, rope.inv_freq, distance)
    cuts: list[int]
    for cuts in ([], [5], [16, 17, 40], [*range(60, 70)]):
        output = in_chunks(windowed.attend, scheme, parts, rope, cuts)
        torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


SIZES = st.integers(1, 40)
ANY_CASE = st.one_of(
    st.tuples(SIZES, st.integers(1, 12)).map(lambda n: (LambdaShaped(*n), lambda_distance(*n))),
    st.tuples(st.integers(1, 8), st.integers(1, 6))
    .map(lambda n: (n[0] * n[1], n[0]))
    .map(lambda n: (GroupedNeighbour(*n), grouped_distance(*n))),
    st.tuples(SIZES, st.integers(1, 12)).map(lambda n: (CacheSinks(*n), cache_distance(*n))),
    st.tuples(SIZES, st.none() | st.integers(1, 20)).map(lambda n: rectified(*n)),
)


@given(ANY_CASE, st.integers(1, 90), st.booleans(), st.data())
def test_a_kernel_equals_dense_attention_for_any_sizes_and_chunks(case, tokens, blocked, data):
    scheme, distance = case
    cuts = sorted(data.draw(st.sets(st.integers(1, max(tokens - 1, 1)), max_size=3)))
    cuts = [cut for cut in cuts if cut < tokens]
    parts, rope = random_states(tokens, batch=1, heads=2, kv_heads=1, dim=4), table(pairs=2)
    with pytest.MonkeyPatch.context() as patch:
        if blocked:
            patch.setattr(flash, "backend", lambda device, dtype: "blocked")
            patch.setattr(flash, "_SCORES", 1000)
        output = in_chunks(windowed.attend, scheme, parts, rope, cuts)
    expected = dense(*parts, rope.inv_freq, distance)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("queries", "keys"), [(900, 900), (300, 700), (513, 768)])
def test_blocks_of_a_window_meet_without_gap_or_overlap(queries, keys, any_backend):
    query, key, value = random_states(keys, heads=2, kv_heads=1, dim=4)
    query, row = query[:, :, keys - queries :], torch.arange(keys - queries, keys)[:, None]
    column = torch.arange(keys)
    scores = query @ key.transpose(-1, -2) * SCALING
    scores = scores.masked_fill((column > row) | (column <= row - 300), -math.inf)
    part = attend_window(query, key, value, SCALING, 300)
    torch.testing.assert_close(part.output, scores.softmax(-1) @ value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(part.lse, scores.logsumexp(-1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("scheme", "distance"), CASES[::3])  # one of each kernel
def test_segments_of_queries_equal_dense_attention(scheme, distance, monkeypatch):
    parts, rope = random_states(150, dim=10), table(pairs=4)
    expected = dense(*parts, rope.inv_freq, distance)
    for size in (40, 150):  # 150: all queries together, as on a GPU
        monkeypatch.setattr(windowed, "_SEGMENT", size)
        for cuts in ([], [100]):
            output = in_chunks(windowed.attend, scheme, parts, rope, cuts)
            torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cuts", [[], [1], [13, 14, 50]])
@pytest.mark.parametrize(("bases", "kv_heads"), [(None, 4), (4, 4), (2, 2)])
def test_full_causal_equals_dense_attention_with_a_base_per_head(cuts, bases, kv_heads):
    parts, rope = random_states(60, kv_heads=kv_heads, dim=10), table(pairs=4, heads=bases)
    if bases == 2:  # heads that share keys share their base
        rope = RopeTable(rope.inv_freq.repeat(2, axis=0))
    check_heads(rope, 4, kv_heads)
    expected = dense(*parts, rope.inv_freq, lambda i, j: i - j if j <= i else None)
    output = in_chunks(causal.full_causal, FullCausal(), parts, rope, cuts)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


def test_full_causal_has_the_gradients_of_dense_attention():
    parts = random_states(30, batch=1, kv_heads=4)
    rope = table(pairs=4, heads=4)
    ours = [part.clone().requires_grad_() for part in parts]
    theirs = [part.clone().requires_grad_() for part in parts]
    causal.full_causal(
        FullCausal(), AttentionInputs(*ours, rope, 0, SCALING)
    ).square().sum().backward()
    dense(*theirs, rope.inv_freq, lambda i, j: i - j if j <= i else None).square().sum().backward()
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our.grad, their.grad, rtol=1e-9, atol=1e-9)


def test_merged_parts_equal_attention_over_all_keys_even_where_one_part_dominates():
    query, key, value = random_states(30, batch=1, heads=2)
    key[:, :, :10] *= 60
    first = attend_all(query, key[:, :, :10], value[:, :, :10], SCALING)
    second = attend_all(query, key[:, :, 10:], value[:, :, 10:], SCALING)
    whole = attend_all(query, key, value, SCALING)
    merged = merge(first, 0, second)
    torch.testing.assert_close(merged.output, whole.output, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(merged.lse, whole.lse, rtol=1e-12, atol=1e-12)


def test_rotation_tells_all_positions_apart_in_bfloat16():
    ones = torch.ones(1, 1, 32768, 2, dtype=torch.bfloat16)
    rotate, places = Rotation(RopeTable(np.array([1e-4])), ones), torch.arange(32768)
    blocks = [rotate._kept(block, 1024, ones.device) for block in range(32)]
    cos, sin = (torch.cat(parts)[:, 0] for parts in zip(*blocks, strict=True))
    assert cos.dtype == torch.float32
    assert len(torch.unique(torch.stack((cos, sin), -1), dim=0)) == 32768
    turned = rotate(ones, places)[0, 0].double()
    assert torch.equal(turned, rotate(ones, slice(32768))[0, 0].double())
    angle = torch.arange(32768.0, dtype=torch.float64) * 1e-4
    expected = torch.stack((angle.cos() - angle.sin(), angle.cos() + angle.sin()), -1)
    assert (turned - expected).abs().max() < 4e-3


HALF_ULP = 2**-8
"""Largest relative error of one rounding to bfloat16."""


def part(seed: int) -> Partial:
    generator = torch.Generator().manual_seed(seed)
    output = torch.randn(2, 3, 64, 16, generator=generator).to(torch.bfloat16)
    return Partial(output, 2 * torch.randn(2, 3, 64, generator=generator))


def mixed(first: Partial, second: Partial) -> torch.Tensor:
    weights = torch.stack((first.lse, second.lse)).double().softmax(dim=0)[..., None]
    return weights[0] * first.output.double() + weights[1] * second.output.double()


def test_merged_parts_and_rows_are_rounded_once():
    first, second = part(0), part(1)
    rows, later = part(2), part(3).rows(0, 20)
    expected = [mixed(first, second), mixed(rows.rows(30, 50), later)]
    merge(rows, 30, later)
    for found, wanted in zip((merge(first, 0, second), rows.rows(30, 50)), expected, strict=True):
        error = (found.output.double() - wanted).abs()
        assert (error <= HALF_ULP * wanted.abs() + 1e-6).all()


LENGTH, PAIRS = 131_072, 8
LAST = slice(LENGTH - 1000, LENGTH)
FAR_TABLE = RopeTable(1e4 ** (-np.arange(PAIRS) / PAIRS))


def angles() -> NDArray[np.longdouble]:
    """Angles (1000, pairs) of the last positions, to 18 digits."""
    places = np.arange(LENGTH, dtype=np.longdouble)[LAST]
    return places[:, None] * FAR_TABLE.inv_freq.astype(np.longdouble)


def test_kernels_rotate_far_positions_by_exact_angles():
    pairs = torch.zeros(1, 1, 1000, 2, PAIRS)
    pairs[..., 0, :] = 1
    turned = Rotation(FAR_TABLE, pairs)(pairs.flatten(-2), torch.arange(LENGTH)[LAST])
    cos, sin = turned[0, 0].double().numpy().reshape(1000, 2, PAIRS).transpose(1, 0, 2)
    np.testing.assert_allclose(cos, np.cos(angles()), rtol=0, atol=1e-7)
    np.testing.assert_allclose(sin, np.sin(angles()), rtol=0, atol=1e-7)


def test_the_models_rotary_module_gives_exact_cosines_of_far_positions():
    rotary = RequestRotary(2 * PAIRS, identity=False)
    rotary.begin(FAR_TABLE, LENGTH)
    cos, sin = rotary(torch.zeros(1), torch.arange(LENGTH)[None, LAST])
    for half in (slice(PAIRS), slice(PAIRS, None)):
        np.testing.assert_allclose(cos[0, :, half].double(), np.cos(angles()), rtol=0, atol=1e-7)
        np.testing.assert_allclose(sin[0, :, half].double(), np.sin(angles()), rtol=0, atol=1e-7)


def per_head(bases: str) -> RopeTable:
    """A table whose heads have the same base where the letters are the same."""
    return RopeTable(np.stack([FAR_TABLE.inv_freq / ord(base) for base in bases]))


@pytest.mark.parametrize(
    ("bases", "kv_heads"), [("aabbccdd", 2), ("aabbcc", 2), ("aaabbb", 3), ("abab", 2), ("ab", 1)]
)
def test_bases_that_change_within_a_key_value_head_are_refused(bases, kv_heads):
    with pytest.raises(SpecError, match="different bases within a key-value head"):
        check_heads(per_head(bases), len(bases), kv_heads)
    with pytest.raises(SpecError, match="one row for each"):
        check_heads(per_head(bases[1:]), len(bases), kv_heads)
