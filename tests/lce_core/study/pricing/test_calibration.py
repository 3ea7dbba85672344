"""Calibrations find what made the timings, whatever a few odd steps say, and know how far they err.

Timings are made by known laws; errors are held against sums of steps that were not seen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lce_core.study.pricing.calibration import LEAST, Calibration, Line, Timing, fitted_line
from lce_core.study.pricing.finished import Finished
from lce_core.study.pricing.speed import Rates, Speed, calibration_of, fitted
from lce_core.study.step_cost import StepCost

FACTORS = st.floats(0.05, 20)
GROUP = ("cell", "b", "m")
SIZES = st.lists(st.floats(0.1, 1e5), min_size=LEAST, max_size=40)


def line_of(predicted: Iterable[float], measured: Iterable[float]) -> Line:
    pairs = zip(predicted, measured, strict=True)
    return fitted_line([Timing(GROUP, one, other) for one, other in pairs])


@settings(max_examples=60)
@given(sizes=SIZES, factor=FACTORS)
def test_a_factor_is_found(sizes: list[float], factor: float) -> None:
    line = line_of(sizes, [factor * size for size in sizes])
    for size in (0.01, *sizes, 1e7):
        assert line.seconds(size) == pytest.approx(factor * size, rel=0.05)
    assert line.shared < 1e-6


@settings(max_examples=60)
@given(slope=st.floats(0.55, 1.9), factor=FACTORS, low=st.floats(0.1, 10))
def test_a_power_law_is_found_and_not_carried_on(slope: float, factor: float, low: float) -> None:
    sizes = [low * 1.5**n for n in range(20)]
    line = line_of(sizes, [max(factor * size**slope, 2e-3) for size in sizes])
    usable = [size for size in sizes if factor * size**slope > 2e-3]
    if len(usable) < len(sizes):
        return
    for size in sizes:
        assert line.seconds(size) == pytest.approx(factor * size**slope, rel=1e-6)
    # Beyond what was seen the last ratio holds.
    for end, beyond in ((sizes[0], sizes[0] / 10), (sizes[-1], sizes[-1] * 10)):
        assert line.seconds(beyond) / beyond == pytest.approx(line.seconds(end) / end)


@settings(max_examples=60)
@given(
    sizes=st.lists(st.floats(1, 1e4), min_size=12, max_size=40),
    factor=FACTORS,
    odd=st.floats(1e-2, 1e3),
)
def test_a_quarter_of_odd_steps_moves_nothing(
    sizes: list[float], factor: float, odd: float
) -> None:
    measured = [factor * size * (odd if n % 4 == 3 else 1.0) for n, size in enumerate(sizes)]
    line = line_of(sizes, [max(seconds, 1e-3) for seconds in measured])
    for size in sizes:
        assert line.seconds(size) == pytest.approx(factor * size, rel=0.05)


def test_too_few_steps_correct_nothing_and_a_wider_group_does_for_a_narrow_one() -> None:
    few = [Timing(("cell", "ruler", "yarn"), 1.0, 3.0)] * (LEAST - 1)
    calibration = Calibration(few)
    assert not calibration.lines
    assert calibration.seconds(("cell", "ruler", "yarn"), 2.0) == 2.0
    assert calibration.expected([(("cell", "ruler", "yarn"), 2.0)]).error is None
    calibration = Calibration([*few, Timing(("cell", "passkey", "none"), 1.0, 3.0)])
    assert set(calibration.lines) == {("cell",)}
    assert calibration.seconds(("cell", "needle", "pi"), 2.0) == pytest.approx(6.0)
    assert calibration.seconds(("finetune", "pi"), 2.0) == 2.0
    own = [Timing(("cell", "needle", "pi"), 1.0, 0.5)] * LEAST
    both = Calibration([*few, *own])
    assert both.seconds(("cell", "needle", "pi"), 2.0) == pytest.approx(1.0)


def test_steps_of_one_method_say_less_of_another_than_of_themselves() -> None:
    rng = random.Random(0)
    steps = [
        Timing(("cell", "ruler", method), 10.0, 10 * math.exp(rng.gauss(0, 0.2)))
        for method in ("yarn", "pi")
        for _ in range(40)
    ]
    calibration = Calibration(steps)
    assert calibration.lines["cell", "ruler"].independent == 2
    assert calibration.lines["cell", "ruler", "yarn"].independent == 40

    def error(method: str) -> float:
        found = calibration.expected([(("cell", "ruler", method), 10.0)] * 100).error
        assert found is not None
        return found

    assert error("harpe") > 3 * error("yarn")


def test_what_nothing_was_seen_of_widens_the_error_and_in_the_end_hides_it() -> None:
    calibration = Calibration([Timing(("cell", "ruler", "yarn"), 10.0, 10.0 + n) for n in range(9)])
    known, unknown = (("cell", "ruler", "yarn"), 10.0), (("finetune", "yarn"), 10.0)
    errors = [calibration.expected([known] * 10 + [unknown] * n).error for n in (0, 3, 10, 11)]
    assert errors[3] is None
    assert errors[0] is not None
    assert errors[1] is not None
    assert errors[2] is not None
    assert errors[0] < errors[1] < errors[2]
    assert calibration.expected([]).error is None


@pytest.mark.parametrize("spread", [0.1, 0.4])
def test_sums_lie_within_their_errors_nineteen_times_of_twenty(spread: float) -> None:
    rng, within = random.Random(7), 0
    for _ in range(200):
        methods = {f"m{n}": rng.gauss(0, spread) for n in range(12)}
        slope, level = rng.uniform(0.7, 1.3), rng.gauss(0, 1)

        def took(
            method: str,
            size: float,
            slope: float = slope,
            level: float = level,
            methods: dict[str, float] = methods,
        ) -> float:
            noise = rng.gauss(0, spread / 2)
            return math.exp(level + slope * math.log(size) + methods[method] + noise)

        sizes = [2.0**n for n in range(1, 7)]
        seen = [Timing(("cell", "b", m), s, took(m, s)) for m in list(methods)[:6] for s in sizes]
        rest = [(m, s) for m in list(methods)[6:] for s in sizes]
        calibration = Calibration(seen)
        told = [(("cell", "b", m), calibration.seconds(("cell", "b", m), s)) for m, s in rest]
        expected = calibration.expected(told)
        assert expected.error is not None
        true = sum(took(m, s) for m, s in rest)
        within += abs(true / expected.seconds - 1) <= expected.error
    assert within / 200 >= 0.92


def test_a_fitted_speed_is_judged_by_steps_that_it_was_not_fitted_to() -> None:
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
