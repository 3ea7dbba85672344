"""Differences to the base model are those of the same positions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.against_base import Band, band_label, bands, differences

NLL = st.floats(0, 12)


def rows(method: str, values: list[float | None], frozen: bool = True) -> list[dict[str, Any]]:
    return [
        {"method": method, "frozen": frozen, "position_bin": 256 * index, "nll": value}
        for index, value in enumerate(values)
    ]


def bins(values: list[float | None], trained: int) -> tuple[Band, ...]:
    return bands(256 * trained, 256 * len(values))


@given(trained=st.integers(1, 9000), length=st.integers(1, 200_000))
def test_bands_part_all_positions_at_doublings_of_the_trained_context(
    trained: int, length: int
) -> None:
    found = bands(trained, length)
    assert [band.begin for band in found] == [0, *(band.end for band in found[:-1])]
    assert found[-1].end == length
    for number, band in enumerate(found[:-1]):
        assert band.end == trained * 2**number
    assert length <= trained * 2 ** (len(found) - 1)


@given(values=st.lists(NLL, min_size=2, max_size=20), gain=st.floats(-2, 2), data=st.data())
def test_a_constant_gain_is_found_whatever_the_text(
    values: list[float], gain: float, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(values) - 1))
    parts = bins([*values], cut)
    (one,) = differences(
        rows("none", [*values]) + rows("yarn", [value + gain for value in values]), parts
    )
    for band, found in zip(parts, one.by_band, strict=True):
        number = (band.end - band.begin) // 256
        assert found is not None
        assert found.value == pytest.approx(gain, abs=1e-9)
        assert found.num_samples == number
        if number > 1:
            assert found.low == pytest.approx(gain, abs=1e-9)
            assert found.high == pytest.approx(gain, abs=1e-9)


def test_only_positions_of_both_are_compared_and_tuned_none_is_a_method() -> None:
    parts = bins([1.0, 2.0, None], 1)
    (tuned,) = differences(
        rows("none", [1.0, 2.0, None])
        + rows("none", [0.5, 1.0, 1.0], frozen=False)
        + rows("pi", [None, None, 3.0]),
        parts,
    )
    assert (tuned.method, tuned.frozen) == ("none", False)
    assert [one and one.value for one in tuned.by_band] == [-0.5, -1.0, None]
    assert [band_label(part) for part in parts] == ["to 256", "256 to 512", "512 to 768"]
    assert [one and one.value for one in tuned.by_band] == [-0.5, -1.0, None]


def test_without_the_base_there_is_nothing_to_compare() -> None:
    assert differences(rows("pi", [1.0, 2.0]), bands(256, 512)) == []
