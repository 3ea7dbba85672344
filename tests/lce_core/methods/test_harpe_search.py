"""The search for HARPE's bases against table 2, and its parts against direct definitions.

Table 2 and its order of selection were reproduced before by other code; the waveform is compared
with its plain sum, extrema with a search through all points, one after another.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lce_core.errors import SpecError
from lce_core.methods.harpe.search import (
    PUBLISHED,
    SearchSettings,
    main_extrema,
    search_bases,
    waveform,
)

TABLE_2 = [
    1.00, 1.15, 1.30, 1.45, 2.17, 2.20, 2.23, 2.47, 2.50, 2.65, 2.68, 2.71, 2.74, 2.80, 2.83, 2.92,
    3.01, 3.04, 3.10, 3.13, 3.16, 3.22, 3.43, 3.46, 3.61, 3.88, 4.09, 4.15, 4.39, 4.45, 4.51, 4.54,
]  # fmt: skip
ORDER = [
    1.00, 3.88, 1.30, 1.45, 1.15, 4.54, 3.46, 4.15, 2.47, 2.17, 3.13, 4.51, 2.50, 3.04, 3.10, 2.20,
    2.65, 3.43, 2.83, 2.74, 2.23, 3.16, 2.68, 4.45, 2.92, 3.22, 3.01, 2.80, 3.61, 2.71, 4.09, 4.39,
]  # fmt: skip


def test_the_search_gives_all_32_bases_of_table_2_within_seconds() -> None:
    search_bases.cache_clear()
    start = time.perf_counter()
    bases = search_bases(128, 32)
    assert time.perf_counter() - start < 30
    assert [base / 1e6 for base in bases] == ORDER
    assert sorted(base / 1e6 for base in bases) == TABLE_2


def test_a_shorter_search_is_the_beginning_of_a_longer_one() -> None:
    small = SearchSettings(stride=400_000, farthest=8192)
    longest = search_bases(32, 11, small)
    assert len(set(longest)) == 11
    assert all(search_bases(32, count, small) == longest[:count] for count in range(1, 11))


@pytest.mark.parametrize(
    ("changed", "found"),
    [({"num_extrema": 28}, 27), ({"nearest": 950}, 19), ({"farthest": 128_000}, 32)],
)
def test_other_settings_give_as_many_bases_of_table_2_as_is_known(
    changed: dict[str, int], found: int
) -> None:
    bases = search_bases(128, 32, replace(PUBLISHED, **changed))
    assert len({base / 1e6 for base in bases} & set(TABLE_2)) == found


def test_the_first_main_extrema_of_base_1e6_are_known() -> None:
    extrema = main_extrema(1e6, 128)
    assert extrema.peaks[:6].tolist() == [1162, 1238, 1420, 1791, 1848, 2293]
    assert extrema.troughs[:6].tolist() == [2133, 2529, 2648, 3138, 3894, 4715]
    assert len(extrema.peaks) == len(extrema.troughs) == 30


@settings(deadline=None, max_examples=40)
@given(st.floats(500, 5e6), st.integers(1, 64), st.integers(0, 100_000), st.integers(0, 3000))
def test_a_waveform_is_the_plain_sum_of_its_cosines(
    base: float, pairs: int, nearest: int, more: int
) -> None:
    values = waveform(base, 2 * pairs, nearest, nearest + more)
    assert values.shape == (more + 1,)
    for index in {0, more // 2, more}:
        terms = [math.cos((nearest + index) * base ** (-i / pairs)) for i in range(pairs)]
        expected = 2 * math.fsum(terms) / math.sqrt(2 * pairs)
        assert values[index] == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.floats(1e4, 5e6), st.integers(2, 32))
def test_main_extrema_are_extrema_that_keep_their_distance(base: float, pairs: int) -> None:
    chosen = replace(PUBLISHED, farthest=6000)
    values = waveform(base, 2 * pairs, chosen.nearest, chosen.farthest)
    extrema = main_extrema(base, 2 * pairs, chosen)
    for positions, gap, sign in ((extrema.peaks, 50, 1), (extrema.troughs, 60, -1)):
        assert len(positions) <= chosen.num_extrema
        assert (np.diff(positions) > gap).all()
        at = positions - chosen.nearest
        assert (sign * values[at] > sign * values[at - 1]).all()
        assert (sign * values[at] > sign * values[at + 1]).all()


LOOKED_AT = st.builds(
    SearchSettings,
    nearest=st.integers(0, 1500),
    farthest=st.integers(1500, 6000),
    num_extrema=st.integers(1, 40),
    peak_gap=st.integers(0, 120),
    trough_gap=st.integers(0, 120),
    stretch=st.integers(1, 700),
)


@settings(deadline=None, max_examples=60)
@given(st.floats(2, 5e6), st.integers(1, 32), LOOKED_AT)
def test_main_extrema_are_those_of_a_walk_over_every_point(
    base: float, pairs: int, chosen: SearchSettings
) -> None:
    heights = waveform(base, 2 * pairs, chosen.nearest, chosen.farthest).tolist()
    found = main_extrema(base, 2 * pairs, chosen)
    peaks = walked_peaks(heights, chosen)
    troughs = walked_troughs(heights, chosen)
    assert (found.peaks - chosen.nearest).tolist() == peaks
    assert (found.troughs - chosen.nearest).tolist() == troughs


def walked_peaks(heights: list[float], chosen: SearchSettings) -> list[int]:
    """From the near end: local maxima as high as the highest point of the stretch ahead."""
    inner = range(1, len(heights) - 1)
    maxima = [m for m in inner if heights[m - 1] < heights[m] > heights[m + 1]]
    target = max((heights[m] for m in maxima), default=math.inf)
    found: list[int] = []
    for here, following in pairwise(maxima):
        if len(found) < chosen.num_extrema and abs(heights[here] - target) <= 1e-3:
            if not found or here - found[-1] > chosen.peak_gap:
                found.append(here)
            start = min(here + chosen.peak_gap, following)
            target = max(heights[start : start + chosen.stretch])
    return found


def walked_troughs(heights: list[float], chosen: SearchSettings) -> list[int]:
    """From the far end: local minima as low as the lowest point of all that is nearer."""
    inner = range(len(heights) - 2, 0, -1)
    minima = [m for m in inner if heights[m - 1] > heights[m] < heights[m + 1]]
    target = min((heights[m] for m in minima), default=math.inf)
    found: list[int] = []
    for here, following in pairwise(minima):
        if len(found) < chosen.num_extrema and abs(heights[here] - target) <= 1e-3:
            if not found or found[-1] - here > chosen.trough_gap:
                found.append(here)
            nearer = heights[: max(0, min(here - chosen.peak_gap, following))]
            target = min(nearer, default=math.inf)
    return sorted(found)


@pytest.mark.parametrize("count", [0, 135])
def test_more_bases_than_candidates_are_refused(count: int) -> None:
    with pytest.raises(
        SpecError, match=f"harpe search: got {count} bases to choose; expected 1 to 134 bases"
    ):
        search_bases(128, count)
