"""Speeds: fits recover rates that made the timings; data sheets order devices as they are.
Calibrations find what made the timings, in spite of odd steps, and know how far they err."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flows.settings import STUDIES
from lce_core.store.artifacts import Attempt, Store
from lce_core.store.records import RECORD, sealed
from lce_core.store.steps import Step
from lce_core.study.cost import Decoding, StepCost
from lce_core.study.plan import compile_study
from lce_core.study.pricing.calibration import LEAST, Calibration, Group
from lce_core.study.pricing.speed import (
    DEVICE_TYPES,
    Finished,
    Rates,
    Speed,
    device_type_of,
    finished_on,
    fitted,
    speed_of,
)
from lce_core.study.step_kinds import step_cost
from lce_core.study.study_file import load_study
from tests.support.free_steps import write_file

GUESS = Rates(1e9, 1e9, 1e-3)
EXECUTION = {"threads": 1, "device": "auto"}


def finished(kind: str, cost: StepCost, seconds: float) -> Finished:
    return Finished(kind, cost, seconds, planned=cost, group=(kind,))


@given(rate=st.floats(1e9, 1e12), beside=st.floats(0, 2), training=st.floats(1e9, 1e12))
def test_a_fit_finds_the_rates_that_made_the_timings(rate, beside, training):
    costs = [StepCost(1, flops) for flops in (1e9, 3e9, 2e10, 5e11, 7e10)]
    cells = [finished("cell", cost, cost.flops / rate + beside) for cost in costs]
    tunes = [finished("finetune", cost, cost.flops / training) for cost in costs]
    # Below a millisecond a record's time is rounding.
    usable = [one for one in cells + tunes if one.seconds > 0.1]
    assume({one.kind for one in usable} == {"cell", "finetune"})
    speed = fitted(usable, lambda: GUESS)
    for one in usable:
        assert speed.seconds(one.kind, one.cost) == pytest.approx(one.seconds, rel=0.02)


def test_decoding_is_fitted_from_steps_that_decoded():
    made = Speed("cpu", "measured", GUESS, Rates(2e10, 1e10, 2e-3), {"cell": 0.3})
    costs = [
        StepCost(1, flops, Decoding(8, 1e6, read, layers))
        for flops, read, layers in (
            (1e9, 1e9, 30),
            (1e11, 2e9, 60),
            (3e10, 3e11, 10),
            (1e10, 0.0, 0),
            (1e9, 1e11, 900),
            (5e11, 5e10, 3000),
        )
    ]
    cells = [finished("cell", cost, made.seconds("cell", cost)) for cost in costs]
    found = fitted(cells, lambda: GUESS)
    assert found.evaluation.flops == pytest.approx(2e10, rel=0.01)
    assert found.evaluation.bandwidth == pytest.approx(1e10, rel=0.01)
    assert found.evaluation.layer_seconds == pytest.approx(2e-3, rel=0.01)


def test_what_nothing_was_measured_of_is_guessed():
    speed = fitted([], lambda: GUESS)
    assert (speed.origin, speed.training, speed.evaluation) == ("guessed", GUESS, GUESS)
    cells = [finished("cell", StepCost(1, 1e10), 2.0)]
    speed = fitted(cells, lambda: GUESS)
    assert speed.origin == "measured"
    assert speed.training == GUESS
    assert speed.evaluation.bandwidth == GUESS.bandwidth
    assert speed.seconds("cell", StepCost(1, 1e10)) == pytest.approx(2.0)


def test_seconds_that_do_not_grow_with_the_work_still_price_larger_steps():
    cells = [finished("cell", StepCost(1, flops), 2.0) for flops in (1e9, 1e10, 1e11)]
    speed = fitted(cells, lambda: GUESS)
    told = [speed.seconds("cell", one.cost) for one in cells]
    assert sum(told) == pytest.approx(6.0)
    assert speed.seconds("cell", StepCost(1, 1e12)) > max(told)


def test_cells_that_passed_no_token_say_nothing_about_the_speed():
    reused = [finished("cell", StepCost(0, 0.0), 0.1) for _ in range(3)]
    assert fitted(reused, lambda: GUESS).evaluation == GUESS
    computed = [finished("cell", StepCost(1, 1e10), 2.0)]
    with_both, alone = (fitted(cells, lambda: GUESS) for cells in (computed + reused, computed))
    assert with_both == alone


def test_seven_billion_weights_decode_within_what_was_measured():
    # Milliseconds per token after 2,048 tokens on an H200 (docs/gpus.md): 7.8 without an attention
    # scheme, 12.4 for HARPE, 27.6 for Self-Extend.
    weights, cached = 6.607e9, 2048 * 2 * 32 * 4096
    token = StepCost(0, 0.0, Decoding(1, 2 * weights, 2 * (weights + cached), 32))
    found = DEVICE_TYPES["h200"].evaluation.seconds(token)
    assert found == pytest.approx(0.0124, rel=0.1)


def test_devices_are_known_by_the_names_that_drivers_give():
    drivers = ("A100-SXM4-80GB", "H100 80GB HBM3", "H200", "GeForce RTX 4090")
    found = [device_type_of(f"NVIDIA {name}") for name in drivers]
    assert found == ["a100", "h100", "h200", None]


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    return list(compile_study(load_study(STUDIES / "smoke.yaml"), {}).steps.values())


def record(store: Store, step: Step, passed: float, execution: dict[str, Any] = EXECUTION) -> Path:
    """Commit a step that passed a share of its planned text in 4 s; return its record."""

    def write(attempt: Attempt) -> dict[str, Any]:
        return write_file(attempt) | {"passed_tokens": int(step_cost(step).tokens * passed)}

    store.ensure(step, write, execution)
    file = store.path(step) / RECORD
    file.write_text(json.dumps(sealed({**json.loads(file.read_text()), "seconds": 4.0})))
    return file


def test_only_records_of_this_cpu_and_these_threads_count(tmp_path, steps):
    store, other = Store(tmp_path), {"cpu": "another", "accelerators": []}
    cells = [step for step in steps if step.axes.get("benchmark") == "passkey"]
    record(store, cells[0], 2.0)  # more than planned: every token was passed
    record(store, cells[1], 2.0, {**EXECUTION, "threads": 7})
    for step, changes in ((cells[2], other), (cells[3], {"accelerators": ["NVIDIA H100"]})):
        file = record(store, step, 2.0)
        content = json.loads(file.read_text())
        environment = {**content["environment"], **changes}
        file.write_text(json.dumps(sealed({**content, "environment": environment})))
    here = finished_on("cpu", store, 1)
    (found,) = here
    assert (found.kind, found.cost, found.seconds) == ("cell", step_cost(cells[0]), 4.0)
    assert [one.seconds for one in finished_on("h100", store, 1)] == [4.0]
    assert not finished_on("a100", store, 1)
    speed = speed_of("cpu", here)
    assert speed.origin == "measured"
    assert speed.seconds("cell", found.cost) == pytest.approx(4.0)
    assert speed_of("cpu", finished_on("cpu", store, 2)).origin == "guessed"


def test_a_record_costs_what_its_processes_passed_and_plans_answers_whole(tmp_path, steps):
    store, two = Store(tmp_path), {**EXECUTION, "processes": 2}

    def of(place: tuple[str, str | None], passed: float, execution: Any) -> tuple[Step, Any]:
        step = next(one for one in steps if (one.kind, one.axes.get("benchmark")) == place)
        before = finished_on("cpu", store, 1)
        record(store, step, passed, execution)
        (found,) = [one for one in finished_on("cpu", store, 1) if one not in before]
        return step, found

    step, found = of(("cell", "perplexity"), 0.5, EXECUTION)
    assert found.group == ("cell", "perplexity", step.axes["method"])
    # Without the text that the cell read off others.
    assert found.cost.tokens == found.planned.tokens == step_cost(step).tokens // 2
    step, found = of(("cell", "passkey"), 0.5, two)
    whole = step_cost(step)
    assert found.cost.tokens < whole.tokens
    assert found.planned.decoding == whole.decoding
    assert found.cost.decoding.tokens < whole.decoding.tokens
    assert of(("finetune", None), 1.0, two)[1].seconds == 8.0


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
