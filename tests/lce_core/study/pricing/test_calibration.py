"""Calibrations find what made the timings, in spite of odd steps, and know how far they err."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.study.pricing.calibration import LEAST, Calibration, Group
from lce_core.study.pricing.finished import Finished
from lce_core.study.pricing.speed import Rates, Speed, calibration_of
from lce_core.study.step_cost import StepCost


def taught(*timings: tuple[Group, float, float]) -> Calibration:
    calibration = Calibration()
    for timing in timings:
        calibration.learn(*timing)
    return calibration


@given(sizes=st.lists(st.floats(1, 4), min_size=40, max_size=60), factor=st.floats(0.05, 20))
def test_a_constant_factor_is_found(sizes, factor):
    group = ("cell", "b", "m")
    calibration = taught(*((group, size, factor * size) for size in sizes))
    for size in sizes:
        assert calibration.seconds(group, size) == pytest.approx(factor * size, rel=0.1)
    assert calibration.expected([(group, 1.0)]).error == pytest.approx(0, abs=1e-6)


def test_few_steps_leave_the_error_unknown_and_a_wider_group_counts_for_a_narrow_one():
    ruler, needle = ("cell", "ruler", "yarn"), ("cell", "needle", "pi")
    assert Calibration().is_empty
    assert Calibration().seconds(ruler, 2.0) == 2.0
    few = [(ruler, 1.0, 3.0)] * (LEAST - 1)
    calibration = taught(*few)
    assert not calibration.is_empty
    assert calibration.seconds(ruler, 1.0) == pytest.approx(3, rel=0.02)
    assert calibration.expected([(ruler, 2.0)]).error is None
    calibration = taught(*few, (("cell", "passkey", "none"), 1.0, 3.0))
    assert calibration.seconds(needle, 1.0) == pytest.approx(3, rel=0.02)
    assert calibration.expected([(needle, 2.0)]).error is not None
    assert calibration.expected([(("finetune", "pi"), 2.0)]).error is None
    both = taught(*few, *[(needle, 1.0, 0.5)] * 10)
    assert both.seconds(needle, 1.0) == pytest.approx(0.5, rel=0.2)


def test_a_step_that_took_no_time_teaches_nothing():
    assert taught((("cell",), 0.0, 1.0)).is_empty


def test_what_nothing_was_seen_of_widens_the_error_and_in_the_end_hides_it():
    calibration = taught(*((("cell", "ruler", "yarn"), 10.0, 10.0 + n) for n in range(9)))
    known, unknown = (("cell", "ruler", "yarn"), 10.0), (("finetune", "yarn"), 10.0)
    *errors, hidden = (
        calibration.expected([known] * 10 + [unknown] * n).error for n in (0, 3, 10, 11)
    )
    assert hidden is None
    widening = [error for error in errors if error is not None]
    assert len(set(widening)) == 3
    assert widening == sorted(widening)


@pytest.mark.parametrize("spread", [0.1, 0.4])
def test_sums_lie_within_their_errors_nineteen_times_of_twenty(spread):
    rng, within = random.Random(7), 0
    sizes = [2.0**n for n in range(1, 7)]
    for _ in range(200):
        slope, level = rng.uniform(0.7, 1.3), rng.gauss(0, 1)
        took: list[tuple[Group, float, float]] = [
            (("cell", "b", f"m{n}"), size, math.exp(level + own + noise) * size**slope)
            for n in range(12)
            for own in [rng.gauss(0, spread)]
            for size in sizes
            for noise in [rng.gauss(0, spread / 2)]
        ]
        seen, rest = took[: len(took) // 2], took[len(took) // 2 :]
        calibration = taught(*seen)
        expected = calibration.expected(
            (group, calibration.seconds(group, predicted)) for group, predicted, _ in rest
        )
        assert expected.error is not None
        true = sum(measured for *_, measured in rest)
        within += abs(true / expected.seconds - 1) <= expected.error
    assert within / 200 >= 0.92


def test_a_data_sheet_is_corrected_by_what_steps_took():
    steps = [
        Finished("cell", cost, cost.flops / 1e10, planned=cost, group=("cell", "b", "m"))
        for cost in (StepCost(1, 10**exponent) for exponent in range(10, 12))
        for _ in range(20)
    ]
    sheet = Speed("a100", "data sheet", Rates(1e11), Rates(1e11))  # ten times too fast
    calibration = calibration_of(sheet, steps)
    assert calibration.seconds(("cell", "b", "m"), 1.0) == pytest.approx(10.0, rel=0.1)


def test_one_odd_step_does_not_rule():
    calibration = taught((("cell",), 1.0, 100.0))
    assert calibration.seconds(("cell",), 1.0) < 80
    for _ in range(200):
        calibration.learn(("cell",), 1.0, 1.0)
    assert calibration.seconds(("cell",), 1.0) == pytest.approx(1.5, abs=0.02)


def test_short_steps_say_little_about_long_ones():
    calibration = taught(*[(("cell",), 90.0, 180.0)] * 20)
    assert calibration.seconds(("cell",), 900.0) == pytest.approx(900 * 17 / 9)
    assert calibration.seconds(("cell",), 90.0) == pytest.approx(180, rel=0.01)
