"""How far a run is, told from the events that workers send."""

from typing import Any

from lce_core.store.steps import Step
from lce_core.study.pricing.calibration import Predicted
from lce_core.study.units import Unit
from tasks.run_progress import RunProgress

CELLS = tuple(Step("cell", name, {}, {}, {}, name) for name in ("a", "b", "c", "d"))
UNIT = Unit("evaluate", "cell", CELLS)


def progress(seconds: float = 60.0) -> RunProgress:
    predicted = {step.fingerprint: Predicted(seconds, ("cell",)) for step in CELLS}
    return RunProgress([UNIT], predicted, [*"abcduvwxyz"], {*"uvwxyz"}, 1)


def step(name: str, **more: Any) -> dict[str, Any]:
    return {"event": "step", "fingerprint": name, "status": "computed", **more}


def test_cells_count_as_they_finish_and_correct_the_time_left():
    run = progress()
    assert (str(run), run.time, run.done) == ("6 of 10 cells", "~4 min left", 0)
    run.publish("evaluate", step("a", seconds=120.0))
    run.publish("evaluate", step("b", seconds=120.0))
    # Two at twice the prediction: of all steps 300 s for 180, of cells 240 + 60 x 300/180 for 180.
    assert (str(run), run.time, run.done) == ("8 of 10 cells", "about 4 min left", 0.5)
    run.publish("evaluate", step("c", status="existing", seconds=0.1))
    assert str(run) == "9 of 10 cells"
    run.publish("evaluate", step("d", status="failed", seconds=1.0))
    assert str(run) == "9 of 10 cells"  # until its unit ends
    run.end([UNIT], failed=True)
    assert str(run) == "9 of 10 cells; 1 cannot be computed"
    assert (run.time, run.done) == ("about 0 s left", 1)


def test_what_a_running_step_says_of_itself_counts(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("tasks.run_progress.time.monotonic", lambda: now[0])
    run = progress(seconds=100.0)
    told = {"event": "progress", "fingerprint": "a"}
    run.publish("evaluate", {**told, "done": 0, "total": 4})
    now[0] = 80.0
    assert run.time == "~5 min left"  # 20 s of it and three times 100 s
    run.publish("evaluate", {**told, "done": 1, "total": 4})
    assert run.time == "~9 min left"  # 240 s more of it
    run.publish("evaluate", step("a", seconds=80.0))
    assert run.running_steps() == {}
    run.publish("evaluate", {**told, "fingerprint": "b", "step": 3, "steps": 4, "loss": 1.0})
    assert run.running_steps()["b"].done == 0.75
    run.finish("evaluate")
    assert run.running_steps() == {}
