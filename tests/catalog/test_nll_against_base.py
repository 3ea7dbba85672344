"""Differences to the base model are those of the same positions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.comparisons.positions import Band, bands, differences

NLL = st.floats(0, 12)
BASE, PI, YARN = ("none", True), ("pi", True), ("yarn", True)


def bins(values: list[float | None]) -> dict[int, float]:
    return {256 * index: value for index, value in enumerate(values) if value is not None}


def parts(num_bins: int, trained: int) -> list[Band]:
    return bands(256 * trained, 256 * num_bins)


@given(values=st.lists(NLL, min_size=2, max_size=20), gain=st.floats(-2, 2), data=st.data())
def test_a_constant_gain_is_found_whatever_the_text(values, gain, data):
    cut = data.draw(st.integers(1, len(values) - 1))
    own = {BASE: bins([*values]), YARN: bins([value + gain for value in values])}
    for method, row in differences(own, parts(len(values), cut)):
        assert method == YARN
        assert row["num_bins"] == (row["band_end"] - row["band_start"]) // 256
        assert row["difference"] == pytest.approx(gain, abs=1e-9)
        if row["num_bins"] > 1:
            assert row["ci_low"] == pytest.approx(gain, abs=1e-9)
            assert row["ci_high"] == pytest.approx(gain, abs=1e-9)


def test_only_positions_of_both_are_compared_and_tuned_none_is_a_method():
    own = {
        BASE: bins([1.0, 2.0, None]),
        ("none", False): bins([0.5, 1.0, 1.0]),
        PI: bins([None, None, 3.0]),
    }
    found = list(differences(own, parts(3, 1)))
    assert [method for method, _ in found] == [("none", False)] * 3
    assert [row["difference"] for _, row in found] == [-0.5, -1.0, None]
    assert [(row["band_start"], row["band_end"]) for _, row in found] == [
        (0, 256), (256, 512), (512, 768),
    ]  # fmt: skip
    assert list(differences({PI: bins([1.0, 2.0])}, bands(256, 512))) == []
