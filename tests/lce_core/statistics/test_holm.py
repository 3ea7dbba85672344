"""Holm's p-values against Bonferroni tests of every subset, and against a worked example."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lce_core.statistics.holm import holm
from tests.support.oracles.error_rates import at_most, between

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


@settings(max_examples=100)
@given(families, st.randoms())
def test_holm_keeps_order_and_is_never_below_the_raw_p_nor_above_bonferroni(raw, random) -> None:
    adjusted = holm(raw)
    assert (adjusted >= raw).all()
    assert (adjusted <= np.minimum(1, len(raw) * np.array(raw))).all()
    ranked = adjusted[np.argsort(raw, kind="stable")]
    assert (np.diff(ranked) >= 0).all()
    places = random.sample(range(len(raw)), len(raw))
    assert holm([raw[place] for place in places]).tolist() == adjusted[places].tolist()


def test_a_family_of_four_is_as_computed_by_hand() -> None:
    # By hand: 4 x 0.01, 3 x 0.02 = 0.06, then 2 x 0.03 = 0.06, then 0.04 raised to 0.06.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


@pytest.mark.slow
def test_a_family_without_differences_has_a_finding_in_at_most_one_of_twenty_studies() -> None:
    rng, runs = np.random.default_rng(0), 4000
    raw = rng.uniform(size=(runs, 8))
    between(sum(holm(one).min() <= 0.05 for one in raw), runs, 0.045, 0.05)
    same = np.repeat(raw[:, :1], 8, axis=1)
    at_most(sum(holm(one).min() <= 0.05 for one in same), runs, 0.05)


@pytest.mark.parametrize("raw", [[], [1.1], [-0.1, 0.5], [float("nan")]])
def test_what_is_no_p_value_is_refused(raw: list[float]) -> None:
    with pytest.raises(AssertionError):
        holm(raw)
