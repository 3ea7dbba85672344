"""Tables against integers of other code; counts are those of arXiv:2405.14591, table 4."""

import numpy as np
import pytest

from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.bound import count_negative, discrimination, first_negative


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
    for factor in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(SpecError, match="attention factor"):
            RopeTable(np.ones(4), factor)
    for lengths in ((0, 1, 1), (1, 0, 1), (1, 1, -5)):
        with pytest.raises(SpecError, match="at least 1"):
            ContextLengths(*lengths)
