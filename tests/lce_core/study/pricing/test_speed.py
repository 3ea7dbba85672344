"""Speeds: fits recover rates that made the timings; data sheets order devices as they are.

Records are real ones of a store, written by `Store.ensure`; their times are set by hand.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.settings import STUDIES
from lce_core.store.artifacts import Attempt, Store
from lce_core.store.records import RECORD, sealed
from lce_core.store.steps import Step
from lce_core.study.plan import compile_study
from lce_core.study.pricing.device_types import DEVICE_TYPES, device_type_of
from lce_core.study.pricing.finished import Finished, finished_on
from lce_core.study.pricing.speed import (
    Rates,
    Speed,
    fitted,
    from_data_sheet,
    speed_of,
    timed_matmul,
)
from lce_core.study.step_cost import Decoding, StepCost
from lce_core.study.step_kinds import step_cost
from lce_core.study.study_file import load_study

GUESS = Rates(1e9, 1e9, 1e-3)
EXECUTION = {"threads": 1, "device": "auto"}


def finished(kind: str, cost: StepCost, seconds: float) -> Finished:
    return Finished(kind, cost, seconds, planned=cost, group=(kind,))


@settings(max_examples=30)
@given(rate=st.floats(1e9, 1e12), beside=st.floats(0, 2), training=st.floats(1e9, 1e12))
def test_a_fit_finds_the_rates_that_made_the_timings(
    rate: float, beside: float, training: float
) -> None:
    costs = [StepCost(1, flops) for flops in (1e9, 3e9, 2e10, 5e11, 7e10)]
    cells = [finished("cell", cost, cost.flops / rate + beside) for cost in costs]
    tunes = [finished("finetune", cost, cost.flops / training) for cost in costs]
    # Below a millisecond a record's time is rounding.
    usable = [one for one in cells + tunes if one.seconds > 0.1]
    if {one.kind for one in usable} != {"cell", "finetune"}:
        return
    speed = fitted(usable, lambda: GUESS)
    for one in usable:
        assert speed.seconds(one.kind, one.cost) == pytest.approx(one.seconds, rel=0.02)


def test_decoding_is_fitted_from_steps_that_decoded() -> None:
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


def test_what_nothing_was_measured_of_is_guessed() -> None:
    speed = fitted([], lambda: GUESS)
    assert (speed.origin, speed.training, speed.evaluation) == ("guessed", GUESS, GUESS)
    cells = [finished("cell", StepCost(1, 1e10), 2.0)]
    speed = fitted(cells, lambda: GUESS)
    assert speed.origin == "measured"
    assert speed.training == GUESS
    assert speed.evaluation.bandwidth == GUESS.bandwidth
    assert speed.seconds("cell", StepCost(1, 1e10)) == pytest.approx(2.0)


def test_cells_that_passed_no_token_say_nothing_about_the_speed() -> None:
    reused = [finished("cell", StepCost(0, 0.0), 0.1) for _ in range(3)]
    assert fitted(reused, lambda: GUESS).evaluation == GUESS
    computed = [finished("cell", StepCost(1, 1e10), 2.0)]
    with_both, alone = (fitted(cells, lambda: GUESS) for cells in (computed + reused, computed))
    assert with_both == alone


def test_busy_threads_of_the_same_process_do_not_move_the_timed_product() -> None:
    """At the start of a run Prefect's client, imports and servers share its process."""
    alone = timed_matmul.__wrapped__()
    end = threading.Event()
    beside = [threading.Thread(target=_busy, args=(end,)) for _ in range(3)]
    for thread in beside:
        thread.start()
    try:
        rates = timed_matmul.__wrapped__()
    finally:
        end.set()
        for thread in beside:
            thread.join()
    assert alone.flops / 4 < rates.flops < alone.flops * 4


def _busy(end: threading.Event) -> None:
    while not end.is_set():
        sum(range(1000))


def test_gpus_are_ordered_as_their_data_sheets_are() -> None:
    prompts = StepCost(1, 1e15)
    answers = StepCost(0, 0.0, Decoding(1000, 1e12, 1e13, 32_000))
    speeds = {name: from_data_sheet(device) for name, device in DEVICE_TYPES.items()}
    seconds = {
        name: (speed.seconds("finetune", prompts), speed.seconds("cell", answers))
        for name, speed in speeds.items()
    }
    assert seconds["a100"] > seconds["h100"]
    assert seconds["h100"][0] == seconds["h200"][0]
    assert seconds["h100"][1] > seconds["h200"][1]


def test_seven_billion_weights_decode_within_what_was_measured() -> None:
    # Milliseconds per token after 2,048 tokens on an H200 (docs/gpus.md): 7.8 without an attention
    # scheme, 12.4 for HARPE, 27.6 for Self-Extend.
    weights, cached = 6.607e9, 2048 * 2 * 32 * 4096
    token = StepCost(0, 0.0, Decoding(1, 2 * weights, 2 * (weights + cached), 32))
    found = from_data_sheet(DEVICE_TYPES["h200"]).evaluation.seconds(token)
    assert found == pytest.approx(0.0124, rel=0.1)


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_devices_are_known_by_the_names_that_drivers_give(driver: str, name: str | None) -> None:
    found = device_type_of(driver)
    assert (found.name if found else None) == name


def test_only_records_of_this_cpu_and_these_threads_count(tmp_path: Path) -> None:
    store = Store(tmp_path)
    plan = compile_study(load_study(STUDIES / "smoke.yaml"), {})
    cells = [step for step in plan.steps.values() if step.axes.get("benchmark") == "passkey"][:4]

    def write(attempt: Attempt) -> dict[str, int]:
        (attempt.out / "file").write_text("a")
        return {"passed_tokens": 1 << 40}  # more than planned: every token was passed

    changes = [
        {},
        {"environment": {"cpu": "another", "accelerators": []}},
        {"execution": {**EXECUTION, "threads": 7}},
        {"environment": {"cpu": None, "accelerators": ["NVIDIA H100"]}},
    ]
    for step, change in zip(cells, changes, strict=True):
        store.ensure(step, write, EXECUTION)
        file = store.path(step) / RECORD
        record = {**json.loads(file.read_text()), "seconds": 4.0}
        if "environment" in change and change["environment"]["cpu"] is None:
            change = {"environment": {**record["environment"], "accelerators": ["NVIDIA H100"]}}
        file.write_text(json.dumps(sealed({**record, **change})))
    here = finished_on("cpu", store, 1)
    (found,) = here
    assert (found.kind, found.cost, found.seconds) == ("cell", step_cost(cells[0]), 4.0)
    assert [one.seconds for one in finished_on("h100", store, 1)] == [4.0]
    assert not finished_on("a100", store, 1)
    speed = speed_of("cpu", here)
    assert speed.origin == "measured"
    assert speed.seconds("cell", found.cost) == pytest.approx(4.0)
    assert speed_of("cpu", finished_on("cpu", store, 2)).origin == "guessed"


def recorded(
    home: Path, place: dict[str, str], passed: float, **more: int
) -> tuple[Step, Finished]:
    """A step of the smoke study that passed a share of its text, and what its record says."""
    store, plan = Store(home), compile_study(load_study(STUDIES / "smoke.yaml"), {})
    step = next(
        one
        for one in plan.steps.values()
        if place.items() <= {"kind": one.kind, **one.axes}.items()
    )

    def write(attempt: Attempt) -> dict[str, int]:
        (attempt.out / "file").write_text("a")
        return {"passed_tokens": int(step_cost(step).tokens * passed)}

    store.ensure(step, write, {**EXECUTION, **more})
    file = store.path(step) / RECORD
    file.write_text(json.dumps(sealed({**json.loads(file.read_text()), "seconds": 4.0})))
    (found,) = finished_on("cpu", store, 1)
    return step, found


def test_a_cell_costs_the_text_it_passed_without_what_it_read_off_others(tmp_path: Path) -> None:
    step, found = recorded(tmp_path, {"benchmark": "perplexity"}, 0.5)
    assert found.group == ("cell", "perplexity", step.axes["method"])
    assert found.cost.tokens == found.planned.tokens == step_cost(step).tokens // 2


def test_answers_that_ended_early_are_planned_whole(tmp_path: Path) -> None:
    step, found = recorded(tmp_path, {"benchmark": "passkey"}, 0.5, processes=2)
    whole = step_cost(step)
    assert found.cost.tokens < whole.tokens
    assert found.planned.decoding == whole.decoding
    assert found.cost.decoding.tokens < whole.decoding.tokens


def test_processes_of_a_training_run_share_it(tmp_path: Path) -> None:
    _, found = recorded(tmp_path, {"kind": "finetune"}, 1.0, processes=2)
    assert found.seconds == 8.0
