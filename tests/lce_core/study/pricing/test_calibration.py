"""Calibrations find what made the timings, in spite of odd steps, and know how far they err."""

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lce_core.study.pricing.calibration import LEAST, Calibration, Line, Timing, fitted_line
from lce_core.study.pricing.finished import Finished
from lce_core.study.pricing.speed import Rates, Speed, calibration_of, fitted
from lce_core.study.step_cost import StepCost

FACTORS = st.floats(0.05, 20)
GROUP = ("cell", "b", "m")


def line_of(predicted: Iterable[float], measured: Iterable[float]) -> Line:
    pairs = zip(predicted, measured, strict=True)
    return fitted_line([Timing(GROUP, one, other) for one, other in pairs])


@given(slope=st.floats(0.55, 1.9), factor=FACTORS, low=st.floats(0.1, 10))
def test_a_power_law_is_found_and_not_carried_on(slope, factor, low):
    sizes = [low * 1.5**n for n in range(20)]
    assume(factor * sizes[0] ** slope > 2e-3)
    line = line_of(sizes, [factor * size**slope for size in sizes])
    for size in sizes:
        assert line.seconds(size) == pytest.approx(factor * size**slope, rel=1e-6)
    # Beyond what was seen the last ratio holds.
    for end, beyond in ((sizes[0], sizes[0] / 10), (sizes[-1], sizes[-1] * 10)):
        assert line.seconds(beyond) / beyond == pytest.approx(line.seconds(end) / end)


@given(
    sizes=st.lists(st.floats(1, 1e4), min_size=12, max_size=40),
    factor=FACTORS,
    odd=st.floats(1e-2, 1e3),
)
def test_a_quarter_of_odd_steps_moves_nothing(sizes, factor, odd):
    measured = [factor * size * (odd if n % 4 == 3 else 1.0) for n, size in enumerate(sizes)]
    line = line_of(sizes, [max(seconds, 1e-3) for seconds in measured])
    for size in sizes:
        assert line.seconds(size) == pytest.approx(factor * size, rel=0.05)


def test_too_few_steps_correct_nothing_and_a_wider_group_does_for_a_narrow_one():
    ruler, needle = ("cell", "ruler", "yarn"), ("cell", "needle", "pi")
    few = [Timing(ruler, 1.0, 3.0)] * (LEAST - 1)
    calibration = Calibration(few)
    assert not calibration.lines
    assert calibration.seconds(ruler, 2.0) == 2.0
    assert calibration.expected([(ruler, 2.0)]).error is None
    calibration = Calibration([*few, Timing(("cell", "passkey", "none"), 1.0, 3.0)])
    assert set(calibration.lines) == {("cell",)}
    assert calibration.seconds(needle, 2.0) == pytest.approx(6.0)
    assert calibration.seconds(("finetune", "pi"), 2.0) == 2.0
    both = Calibration([*few, *[Timing(needle, 1.0, 0.5)] * LEAST])
    assert both.seconds(needle, 2.0) == pytest.approx(1.0)


def test_what_nothing_was_seen_of_widens_the_error_and_in_the_end_hides_it():
    calibration = Calibration([Timing(("cell", "ruler", "yarn"), 10.0, 10.0 + n) for n in range(9)])
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
        took = [
            Timing(("cell", "b", f"m{n}"), size, math.exp(level + own + noise) * size**slope)
            for n in range(12)
            for own in [rng.gauss(0, spread)]
            for size in sizes
            for noise in [rng.gauss(0, spread / 2)]
        ]
        seen, rest = took[: len(took) // 2], took[len(took) // 2 :]
        calibration = Calibration(seen)
        told = [(one.group, calibration.seconds(one.group, one.predicted)) for one in rest]
        expected = calibration.expected(told)
        assert expected.error is not None
        true = sum(one.measured for one in rest)
        within += abs(true / expected.seconds - 1) <= expected.error
    assert within / 200 >= 0.92


def test_a_fitted_speed_is_judged_by_steps_that_it_was_not_fitted_to():
    """Random times: a fit that had seen them all would be too sure of itself."""
    rng = random.Random(3)
    steps = [
        Finished(
            "cell",
            StepCost(1, flops := 10 ** rng.uniform(9, 12)),
            flops / 1e10 * math.exp(rng.gauss(0, 0.5)),
            planned=StepCost(1, flops),
            group=("cell", "b", "m"),
        )
        for _ in range(60)
    ]
    speed = fitted(steps, lambda: Rates(1e9))
    found = calibration_of(speed, steps).lines["cell",]
    assert 0.3 < found.spread < 0.8
    flattering = fitted_line(
        [Timing(one.group, speed.seconds(one.kind, one.cost), one.seconds) for one in steps]
    )
    assert found.spread >= flattering.spread
    told = sum(found.seconds(speed.seconds(one.kind, one.planned)) for one in steps)
    assert told == pytest.approx(sum(one.seconds for one in steps), rel=0.1)
    # A data sheet is not fitted to anything, and ten times too fast.
    sheet = Speed("a100", "data sheet", Rates(1e11), Rates(1e11))
    line = calibration_of(sheet, steps).lines["cell",]
    assert line.seconds(10.0) == pytest.approx(100.0, rel=0.5)
