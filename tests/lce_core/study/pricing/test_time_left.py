"""Time left: worked by hand on small runs, and as properties over random ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core import formats
from lce_core.store.steps import Step
from lce_core.study.pricing.calibration import Predicted, Running, TimeLeft
from lce_core.study.units import Unit

SECONDS = st.floats(0.01, 1e4)
GROUPS = st.sampled_from([("cell", "passkey"), ("cell", "ruler"), ("finetune", "yarn")])


def unit(*names: str, needs: tuple[str, ...] = ()) -> Unit:
    parents = {f"role{index}": need for index, need in enumerate(needs)}
    steps = tuple(Step("cell", name, {}, parents, {}, name) for name in names)
    return Unit(names[0], "cell", steps)


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Unit], dict[str, Predicted]]:
    """Units whose steps need steps of earlier units."""
    units: list[Unit] = []
    predicted: dict[str, Predicted] = {}
    for number in range(draw(st.integers(1, 6))):
        names = [f"{number}-{index}" for index in range(draw(st.integers(1, 3)))]
        known = sorted(predicted)
        needs = draw(st.lists(st.sampled_from(known), max_size=2, unique=True)) if known else []
        units.append(unit(*names, needs=tuple(needs)))
        predicted |= {name: Predicted(draw(SECONDS), draw(GROUPS)) for name in names}
    return units, predicted


def test_the_rest_is_what_the_slots_share_or_the_longest_chain():
    units = [unit("base"), unit("tune", needs=("base",)), unit("a"), unit("b"), unit("c")]
    seconds = {"base": 60.0, "tune": 30.0, "a": 10.0, "b": 10.0, "c": 10.0}
    predicted = {name: Predicted(value, ("cell",)) for name, value in seconds.items()}
    assert TimeLeft(units, predicted, 1).seconds({}) == 120
    assert TimeLeft(units, predicted, 2).seconds({}) == 90
    assert TimeLeft(units, predicted, 8).seconds({}) == 90


def test_the_same_steps_take_the_same_time_to_the_last_digit_in_every_process():
    names = [f"step{number}" for number in range(100)]
    seconds = [1.1**number / 3 for number in range(100)]
    predicted = {n: Predicted(s, ("cell",)) for n, s in zip(names, seconds, strict=True)}
    left = TimeLeft([unit(name) for name in names], predicted, 1)
    assert left.seconds({}) == sum(seconds)  # in the order of the plan, not of a set


def test_a_running_step_counts_for_what_is_left_of_it():
    left = TimeLeft([unit("a")], {"a": Predicted(100, ("cell",))}, 1)
    assert left.seconds({"a": Running(40)}) == 60
    assert left.seconds({"a": Running(400)}) == 10  # longer than predicted, and still not done
    assert left.seconds({"a": Running(400, done=0.8)}) == pytest.approx(100)
    # After a tenth of the way four tenths of what it says count, 500 s, and six of the 100 s.
    assert left.seconds({"a": Running(50, done=0.1)}) == pytest.approx(0.9 * (60 + 200))
    assert left.seconds({"a": Running(10, done=0.1)}) == pytest.approx(90)


@given(run=runs(), slots=st.integers(1, 4), data=st.data())
def test_it_is_never_negative_and_falls_to_zero(run, slots, data):
    units, predicted = run
    left = TimeLeft(units, predicted, slots)
    for step in (step for one in units for step in one.steps):
        running = {step.fingerprint: Running(data.draw(SECONDS), data.draw(st.floats(0, 1)))}
        assert left.seconds(running) >= 0
        assert 0 <= left.done < 1
        assert left.seconds({}) > 0
        left.end(step.fingerprint, data.draw(st.none() | SECONDS))
    assert left.seconds({}) == 0
    assert left.done == 1


@given(run=runs(), slots=st.integers(1, 4))
def test_it_falls_with_every_step_that_takes_what_was_predicted(run, slots):
    units, predicted = run
    left = TimeLeft(units, predicted, slots)
    before, done = left.seconds({}), left.done
    for step in (step for one in units for step in one.steps):
        left.end(step.fingerprint, predicted[step.fingerprint].seconds)
        assert left.seconds({}) <= before * (1 + 1e-9)
        assert left.done >= done
        before, done = left.seconds({}), left.done


def test_steps_that_were_there_or_given_up_teach_nothing():
    predicted = {name: Predicted(10, ("cell",)) for name in "abc"}
    left = TimeLeft([unit("a", "b", "c")], predicted, 1)
    left.end("a")
    left.end("unknown", 5)
    assert not left.is_measured
    assert left.seconds({}) == 20
    left.end("b", 40)
    left.end("b", 40)
    assert left.is_measured
    assert 10 < left.seconds({}) < 40


def test_durations_are_told_in_the_unit_that_fits():
    told = [formats.duration(one) for one in (0, 42.3, 99.4, 360, 7200, 40 * 3600, 12 * 86400)]
    assert told == ["0 s", "42 s", "99 s", "6 min", "2.0 h", "40 h", "12 d"]
