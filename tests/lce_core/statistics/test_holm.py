"""Holm's p-values against Bonferroni tests of every subset, and against a worked example."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.statistics.significance import holm

families = st.lists(st.floats(0, 1), min_size=1, max_size=7)


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
