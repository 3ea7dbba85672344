"""Geometry, tables and the retrieval bound against exact integers and sums known from elsewhere.

The integers were computed in float64 by other code; the bound's counts are those of
arXiv:2405.14591, table 4.
"""

from __future__ import annotations

import numpy as np
import pytest

from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from tests.support.retrieval_bound import bound, retrieval_limit


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
    ("theta", "limit"),
    [
        (1e4, 1707),
        (500.0, 171),
        (100.0, 59),
        (2e5, 12122),
        (5e5, 18438),
        (1e6, 27115),
        (2e6, 48415),
        (5e6, 82999),
    ],
)
def test_the_first_negative_bound_of_each_base_is_the_known_integer(
    theta: float, limit: int
) -> None:
    assert retrieval_limit(geometry(theta=theta).inv_freq()) == limit


@pytest.mark.parametrize(("dim", "limit"), [(32, 474), (64, 725), (80, 1159), (256, 2653)])
def test_the_first_negative_bound_of_each_dimension_is_the_known_integer(
    dim: int, limit: int
) -> None:
    assert retrieval_limit(geometry(rotary_dim=dim).inv_freq()) == limit


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
        ("dynamic_pi", {}, 4096, 1707),
        ("dynamic_pi", {}, 32768, 13649),
        ("dynamic_ntk_aware", {}, 32768, 5732),
        ("dynamic_yarn", {}, 32768, 8886),
        ("abf_single_stage", {"base": 1e6}, 32768, 27115),
        ("abf_single_stage", {"base": 2e6}, 32768, 48415),
        ("abf_single_stage", {}, 32768, 82999),
        ("small_base", {}, 32768, 171),
        ("rope_base_method_1", {}, 32768, 82999),
        ("rope_base_method_2", {}, 32768, 10264),
    ],
)
def test_the_retrieval_limit_of_each_method_is_the_known_integer(
    name: str, parameters: dict[str, object], request_tokens: int, limit: int
) -> None:
    method = METHODS.parse({"name": name, **parameters}, "test")
    table = method.rope_table(geometry(), ContextLengths(4096, 32768, request_tokens))
    assert retrieval_limit(table.inv_freq) == limit


@pytest.mark.parametrize(("form", "limit"), [("formula", 31556), ("printed", 21472)])
def test_the_retrieval_limits_of_ntk_64k_are_the_known_integers(form: str, limit: int) -> None:
    method = METHODS.parse({"name": "ntk_64k", "scale_form": form}, "test")
    table = method.rope_table(geometry(), ContextLengths(4096, 65536, 4096))
    assert retrieval_limit(table.inv_freq) == limit


def test_the_retrieval_limits_of_harpe_span_the_known_integers() -> None:
    table = METHODS.parse({"name": "harpe"}, "test").rope_table(
        geometry(), ContextLengths(4096, 131072, 131072)
    )
    limits = [retrieval_limit(row) or 0 for row in table.inv_freq]
    assert (min(limits), max(limits)) == (25242, 78399)


def test_the_bound_starts_with_the_known_sums() -> None:
    expected = [64, 62.093684, 57.381861, 52.186228, 48.58603, 47.185012]
    np.testing.assert_allclose(bound(geometry().inv_freq(), np.arange(6)), expected, rtol=1e-7)


def test_negative_bounds_of_two_bases_are_counted_as_in_the_paper() -> None:
    lengths = ContextLengths(4096, 32768, 32768)
    counts = [
        int((bound(table.inv_freq, np.arange(last + 1)) < 0).sum())
        for name in ("rope_base_method_1", "rope_base_method_2")
        for table in [METHODS.parse({"name": name}, "test").rope_table(geometry(), lengths)]
        for last in (15360, 30720)
    ]
    assert counts == [0, 0, 97, 2554]


def test_a_bound_that_stays_positive_has_no_limit() -> None:
    assert retrieval_limit(geometry(theta=5e6).inv_freq(), longest=82998) is None


def test_only_the_rotated_elements_of_a_partial_head_have_frequencies() -> None:
    phi = RopeGeometry(
        head_dim=80, rotary_dim=32, num_heads=32, num_kv_heads=32, theta=1e4, trained_context=2048
    )
    assert phi.inv_freq().shape == (phi.num_pairs,) == (16,)
    assert phi.inv_freq()[1] == pytest.approx(1e4 ** (-2 / 32), rel=1e-15)


@pytest.mark.parametrize("change", [{"rotary_dim": 31}, {"rotary_dim": 96}, {"num_kv_heads": 5}])
def test_an_impossible_geometry_is_refused(change: dict[str, int]) -> None:
    sizes = {"head_dim": 64, "rotary_dim": 32, "num_heads": 8, "num_kv_heads": 8}
    with pytest.raises(SpecError, match="rope geometry"):
        RopeGeometry(**{**sizes, **change}, theta=1e4, trained_context=128)


@pytest.mark.parametrize(
    "inv_freq",
    [
        np.ones(4, dtype=np.float32),
        np.ones((1, 2, 4)),
        np.array([1.0, 0.0]),
        np.array([1.0, -0.1]),
        np.array([1.0, np.nan]),
    ],
)
def test_a_table_that_is_not_positive_float64_is_refused(inv_freq: np.ndarray) -> None:
    with pytest.raises(SpecError, match="rope table"):
        RopeTable(inv_freq)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_an_attention_factor_that_is_not_positive_and_finite_is_refused(factor: float) -> None:
    with pytest.raises(SpecError, match="attention factor"):
        RopeTable(np.ones(4), factor)


@pytest.mark.parametrize("lengths", [(0, 1, 1), (1, 0, 1), (1, 1, -5)])
def test_lengths_below_one_token_are_refused(lengths: tuple[int, int, int]) -> None:
    with pytest.raises(SpecError, match="at least 1"):
        ContextLengths(*lengths)
