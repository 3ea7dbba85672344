"""Tables and sums against integers of other code, sums written out, and arXiv:2405.14591, tables 2
and 4."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.bound import (
    bounded_length,
    count_negative,
    discrimination,
    discrimination_runs,
    first_negative,
    frequencies_of,
    grid,
    smallest_base,
)
from lce_core.rope.inspection import inspect_frequencies

BASES = st.floats(1.5, 1e12)
DIMS = st.integers(1, 128).map(lambda pairs: 2 * pairs)


def written_out(base: float, dim: int, distance: int) -> float:
    """B_m as in theorem 1, one exact sum of cosines."""
    return math.fsum(math.cos(distance * base ** (-2 * i / dim)) for i in range(dim // 2))


def everywhere(base: float, dim: int, length: int) -> np.ndarray:
    """B_0 to B_length, all cosines at once."""
    theta = np.array([base ** (-2 * i / dim) for i in range(dim // 2)])
    return np.cos(np.arange(length + 1)[:, None] * theta[None, :]).sum(axis=1)


@pytest.mark.parametrize(
    ("theta", "limit"), [(1e4, 1707), (500.0, 171), (2e5, 12122), (1e6, 27115), (5e6, 82999)]
)
def test_the_first_negative_sum_of_each_base_is_the_known_integer(theta, limit):
    inv_freq = frequencies_of(theta, 128)
    assert (first_negative(inv_freq), bounded_length(inv_freq)) == (limit, limit - 1)
    assert first_negative(inv_freq, limit - 1) is None
    assert written_out(theta, 128, limit) < 0 <= written_out(theta, 128, limit - 1)


@pytest.mark.parametrize(("dim", "limit"), [(32, 474), (64, 725), (80, 1159), (256, 2653)])
def test_the_first_negative_sum_of_each_dimension_is_the_known_integer(dim, limit):
    assert first_negative(frequencies_of(1e4, dim)) == limit


PUBLISHED = {
    1_000: (4.3e3, 4.3e3, 1_077),
    2_000: (1.6e4, 1.6e4, 2_724),
    4_000: (2.7e4, 2.7e4, 4_079),
    8_000: (8.4e4, 8.4e4, 8_592),
    16_000: (3.1e5, 3.2e5, 12_223),
    32_000: (6.4e5, 6.3e5, 27_685),
    64_000: (2.1e6, 2.1e6, 77_306),
    128_000: (7.8e6, 7.8e6, 128_915),
    256_000: (3.6e7, 3.3e7, 207_455),
    512_000: (6.4e7, 6.5e7, 511_210),
    1_000_000: (5.1e8, 3.5e8, 874_868),
}
"""Length: base as printed, smallest admissible one of two digits, first negative of the printed."""


@pytest.mark.parametrize("length", PUBLISHED)
def test_bases_of_the_papers_table_are_admissible_exactly_where_they_are_the_grids(length):
    printed, smallest, first = PUBLISHED[length]
    assert first_negative(frequencies_of(printed, 128)) == first
    assert (first > length) == (printed == smallest)
    assert first_negative(frequencies_of(smallest, 128), length) is None


@pytest.mark.parametrize("length", [1_000, 4_000])
def test_the_smallest_base_of_two_digits_is_the_one_known(length):
    assert smallest_base(length, 128).base == PUBLISHED[length][1]


@pytest.mark.parametrize(("length", "dim"), [(40, 8), (300, 32), (1_000, 128)])
def test_no_smaller_base_of_the_grid_is_admissible_and_no_larger_one_fails_from_where_it_says(
    length, dim
):
    found = smallest_base(length, dim, digits=1)
    bases = [k * 10.0**e for e in range(17) for k in range(1, 10)][1:]
    assert grid(1) == pytest.approx(bases, rel=1e-12)
    good = [everywhere(base, dim, length).min() >= 0 for base in bases]
    assert found.base == bases[good.index(True)]
    failing = [base for base, fine in zip(bases, good, strict=True) if not fine]
    if found.every_from is None:
        assert not good[-1]
    else:
        assert found.every_from == min(base for base in bases if base > failing[-1])


@given(base=BASES, dim=DIMS, length=st.integers(0, 5000))
def test_runs_by_angle_addition_are_the_sums_written_out(base, dim, length):
    runs = list(discrimination_runs(frequencies_of(base, dim), length))
    found = np.concatenate([sums for _, sums in runs])
    assert [first for first, _ in runs] == np.cumsum([0, *(len(s) for _, s in runs)])[:-1].tolist()
    np.testing.assert_allclose(found, everywhere(base, dim, length), rtol=0, atol=1e-8)
    assert found[-1] == pytest.approx(written_out(base, dim, length), abs=1e-8)


def test_far_sums_keep_their_sign():
    inv_freq = frequencies_of(5.1e8, 128)
    for distance in (874_867, 874_868, 10_000_001):
        found = float(discrimination(inv_freq, np.array([distance]))[0])
        assert found == pytest.approx(written_out(5.1e8, 128, distance), abs=1e-8)


LENGTHS = ContextLengths(trained=100, target=400, request=400)


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        (0.1, 0.1, "unchanged"),  # 1.6 turns in training: every angle was seen
        (0.1, 0.09, "interpolated"),
        (0.1, 0.2, "accelerated"),
        (0.01, 0.01, "extrapolated"),  # 1 of 2 pi seen, 4 reached
        (0.01, 0.0025, "interpolated"),  # exactly what was seen
    ],
)
def test_a_pair_is_in_the_state_that_its_angles_say(before, after, state):
    (head,) = inspect_frequencies(np.array([before]), np.array([after]), LENGTHS)
    assert head.head is None
    (pair,) = head.pairs
    assert pair.state == state
    assert pair.wavelength_before == pytest.approx(2 * math.pi / before)
    assert pair.turns_trained == pytest.approx(100 * before / (2 * math.pi))
    assert pair.turns_request == pytest.approx(400 * after / (2 * math.pi))


def test_each_head_has_its_own_bound_and_pairs_beyond_it_are_marked():
    rows = np.stack([frequencies_of(base, 128) for base in (500.0, 1e4)])
    lengths = ContextLengths(4096, 4096, 4096)
    heads = list(inspect_frequencies(frequencies_of(1e4, 128), rows, lengths))
    assert [(head.head, head.bound) for head in heads] == [(0, 170), (1, 1706)]
    assert heads[1].num_negative == int((everywhere(1e4, 128, 4096) < 0).sum())
    for head, base in zip(heads, (500.0, 1e4), strict=True):
        waves = [2 * math.pi * base ** (i / 64) for i in range(64)]
        beyond = [pair.pair for pair in head.pairs if pair.beyond_bound]
        assert beyond == [i for i, wave in enumerate(waves) if wave > (head.bound or 0)]


def geometry(rotary_dim: int = 128, theta: float = 1e4) -> RopeGeometry:
    return RopeGeometry(
        head_dim=max(rotary_dim, 80),
        rotary_dim=rotary_dim,
        num_heads=32,
        num_kv_heads=32,
        theta=theta,
        trained_context=4096,
    )


@pytest.mark.parametrize(
    ("name", "parameters", "request_tokens", "limit"),
    [
        ("none", {}, 4096, 1707),
        ("pi", {}, 32768, 13649),
        ("ntk_aware", {}, 32768, 5732),
        ("ntk_frozen", {}, 32768, 9094),
        ("ntk_32k", {}, 32768, 13191),
        ("ntk_aware", {"scale": 57.0}, 32768, 21472),
        ("ntk_32k", {}, 65536, 28263),
        ("ntk_aware", {"scale": 121.0}, 32768, 31556),
        ("yarn", {}, 32768, 8886),
        ("yarn", {"ramp": "paper"}, 32768, 9767),
        ("ntk_by_parts", {}, 32768, 9767),
        ("abf_single_stage", {}, 32768, 82999),
        ("small_base", {}, 32768, 171),
        ("rope_base_method_2", {}, 32768, 10264),
    ],
)
def test_the_retrieval_limit_of_each_method_is_the_known_integer(
    name, parameters, request_tokens, limit
):
    method = METHODS.parse({"name": name, **parameters}, "test")
    table = method.rope_table(geometry(), ContextLengths(4096, 32768, request_tokens))
    assert first_negative(table.inv_freq) == limit


def test_negative_bounds_of_two_bases_are_counted_as_in_the_paper():
    lengths = ContextLengths(4096, 32768, 32768)
    counts = [
        count_negative(table.inv_freq, last)
        for name in ("rope_base_method_1", "rope_base_method_2")
        for table in [METHODS.parse({"name": name}, "test").rope_table(geometry(), lengths)]
        for last in (15360, 30720)
    ]
    assert counts == [0, 0, 97, 2554]


def test_only_the_rotated_elements_of_a_partial_head_have_frequencies():
    phi = geometry(rotary_dim=32)
    assert phi.inv_freq().shape == (phi.num_pairs,) == (16,)
    assert phi.inv_freq()[1] == pytest.approx(1e4 ** (-2 / 32), rel=1e-15)


@pytest.mark.parametrize("change", [{"rotary_dim": 31}, {"rotary_dim": 96}, {"num_kv_heads": 5}])
def test_an_impossible_geometry_is_refused(change):
    sizes = {"head_dim": 64, "rotary_dim": 32, "num_heads": 8, "num_kv_heads": 8}
    with pytest.raises(SpecError, match="rope geometry"):
        RopeGeometry(**{**sizes, **change}, theta=1e4, trained_context=128)


@pytest.mark.parametrize(
    "inv_freq",
    [
        np.ones(4, dtype=np.float32),
        np.ones((1, 2, 4)),
        np.array([1.0, -1e-9]),
        np.array([1.0, np.nan]),
        np.array([np.inf, 1.0]),
    ],
)
def test_a_table_with_negative_infinite_or_float32_values_is_refused(inv_freq):
    with pytest.raises(SpecError, match="rope table"):
        RopeTable(inv_freq)


def test_a_pair_without_rotation_adds_one_to_every_sum_of_cosines():
    turning = np.array([1.0, 0.3])
    table = RopeTable(np.append(turning, 0.0))
    distances = np.arange(5000)
    expected = np.cos(np.outer(distances, turning)).sum(axis=1) + 1
    np.testing.assert_allclose(discrimination(table.inv_freq, distances), expected, rtol=1e-12)
    negative = np.flatnonzero(expected < 0)
    assert first_negative(table.inv_freq, 4999) == negative[0]
    assert count_negative(table.inv_freq, 4999) == len(negative)
    assert first_negative(np.zeros(4), 4999) is None


def test_factors_and_lengths_that_are_not_positive_are_refused():
    for factor in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(SpecError, match="attention factor"):
            RopeTable(np.ones(4), factor)
    for lengths in ((0, 1, 1), (1, 0, 1), (1, 1, -5)):
        with pytest.raises(SpecError, match="at least 1"):
            ContextLengths(*lengths)
