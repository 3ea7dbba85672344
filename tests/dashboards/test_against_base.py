"""Differences to the base model are those of the same positions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.against_base import differences

NLL = st.floats(0, 12)


def rows(method: str, values: list[float | None], frozen: bool = True) -> list[dict[str, Any]]:
    return [
        {"method": method, "frozen": frozen, "position_bin": 256 * index, "nll": value}
        for index, value in enumerate(values)
    ]


@given(values=st.lists(NLL, min_size=2, max_size=20), gain=st.floats(-2, 2), data=st.data())
def test_a_constant_gain_is_found_whatever_the_text(
    values: list[float], gain: float, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(values) - 1))
    found = differences(
        rows("none", [*values]) + rows("yarn", [value + gain for value in values]), 256 * cut
    )
    (one,) = found
    for side, number in ((one.within, cut), (one.beyond, len(values) - cut)):
        assert side is not None
        assert side.value == pytest.approx(gain, abs=1e-9)
        assert side.num_samples == number
        if number > 1:
            assert side.low == pytest.approx(gain, abs=1e-9)
            assert side.high == pytest.approx(gain, abs=1e-9)


def test_only_positions_of_both_are_compared_and_tuned_none_is_a_method() -> None:
    found = differences(
        rows("none", [1.0, 2.0, None])
        + rows("none", [0.5, 1.0, 1.0], frozen=False)
        + rows("pi", [None, None, 3.0]),
        256,
    )
    (tuned,) = found
    assert (tuned.method, tuned.frozen) == ("none", False)
    assert tuned.within is not None
    assert tuned.beyond is not None
    assert (tuned.within.value, tuned.beyond.value) == (-0.5, -1.0)


def test_without_the_base_there_is_nothing_to_compare() -> None:
    assert differences(rows("pi", [1.0, 2.0]), 256) == []
