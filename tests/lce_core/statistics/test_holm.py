"""Holm's p-values against Bonferroni tests of every subset, and against a worked example."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lce_core.statistics.holm import holm

families = st.lists(st.floats(0, 1), min_size=1, max_size=7)


@settings(max_examples=100)
@given(families)
def test_holm_closes_bonferroni(raw: list[float]) -> None:
    # Marcus, Peritz and Gabriel 1976: a comparison is a finding if every subset with it is one.
    subsets = [
        chosen
        for size in range(1, len(raw) + 1)
        for chosen in itertools.combinations(range(len(raw)), size)
    ]
    closed = [
        max(min(1.0, len(s) * min(raw[k] for k in s)) for s in subsets if index in s)
        for index in range(len(raw))
    ]
    assert holm(raw) == pytest.approx(closed, rel=1e-12)


def test_a_family_of_four_is_as_computed_by_hand() -> None:
    # By hand: 4 x 0.01, 3 x 0.02 = 0.06, then 2 x 0.03 = 0.06, then 0.04 raised to 0.06.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


@pytest.mark.parametrize("raw", [[], [1.1], [-0.1, 0.5], [float("nan")]])
def test_what_is_no_p_value_is_refused(raw: list[float]) -> None:
    with pytest.raises(AssertionError):
        holm(raw)
