"""`lce status` and `lce watch` over real stores: the grid, who runs what, when watching ends."""

import io
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from flows.settings import STUDIES, make_execution
from lce.views import status_view
from lce.views.planning import Inspection, inspect_study
from lce.views.status_view import ASCII, grid_lines, show_status, watch
from lce_core.store.lease import Lease
from lce_core.store.steps import Step
from tests.support.free_steps import write_file

SMOKE: dict[str, Any] = yaml.safe_load((STUDIES / "smoke.yaml").read_text(encoding="utf-8"))
EXECUTION = {"threads": 1, "device": "cpu"}


@pytest.fixture
def found(tmp_path) -> Inspection:
    inspection = looked_up(tmp_path, SMOKE)
    inspection.store.prepare()
    return inspection


@pytest.fixture
def quick(monkeypatch) -> None:
    """Poll without waiting."""
    for name in ("REFRESH_SECONDS", "STUCK_SECONDS", "_REST_PER_POLL"):
        monkeypatch.setattr(status_view, name, 0.01)


def looked_up(folder: Path, study: dict[str, Any] | str) -> Inspection:
    if isinstance(study, dict):
        file = folder / "study.yaml"
        file.write_text(yaml.safe_dump(study), encoding="utf-8")
        study = str(file)
    return inspect_study(study, make_execution({"home": folder / "home", "slots": 2}))


def compute(found: Inspection, steps: Iterator[Step] | list[Step]) -> None:
    for step in steps:
        found.store.ensure(step, write_file, EXECUTION)


def cell(found: Inspection, method: str, benchmark: str, length: int) -> Step:
    place = (method, benchmark, length)
    return next(
        one.step
        for one in found.plan.cells
        if one.step and (one.method, one.benchmark, one.eval_length) == place
    )


def leased(found: Inspection, step: Step) -> Lease:
    lease = Lease.acquire(found.store.home / "leases", step.id)
    assert lease
    return lease


def grid(found: Inspection) -> list[str]:
    return list(grid_lines(found, found.running(), 80, ASCII))


def test_the_grid_has_a_sign_for_each_state(found):
    others = [step for step in found.plan.steps.values() if step.kind != "cell"]
    compute(found, [*others, cell(found, "none", "perplexity", 128)])
    failed = cell(found, "self_extend", "passkey", 256)
    found.store.failures.add(failed, RuntimeError("no"), EXECUTION)
    with leased(found, cell(found, "yarn", "passkey", 128)):
        lines = grid(found.again())
    assert lines == [
        "             perplexity passkey",
        "             128 256    128 256",
        "none         #   .      .   .",
        "self_extend  .   .      .   !",
        "yarn tuned   .   .      >   .",
        "# done  > running  ! failed  . missing",
    ]


def test_a_sign_stands_for_all_seeds_and_tasks_that_can_be(tmp_path):
    methods = [{"name": "none"}, {"name": "self_extend", "window": 64, "group": 1}]
    found = looked_up(tmp_path, {**SMOKE, "seeds": [0, 1], "methods": methods})
    found.store.prepare()
    of_first = [s for s in found.plan.steps.values() if s.axes.get("seed", 0) == 0]
    compute(found, of_first)
    lines = grid(found.again())
    assert lines[2].split() == ["none", "+", "+", "+", "+"]
    assert "-" in lines[3]  # beyond what this window reaches
    assert lines[-1].split("  ")[0] == "+ in part"


def test_a_benchmark_with_more_lengths_than_fit_is_continued_below(tmp_path):
    lengths = list(range(100, 256, 5))
    benchmarks = [{"name": "passkey", "profile": "tiny", "lengths": lengths, "num_samples": 2}]
    lines = grid(looked_up(tmp_path, {**SMOKE, "benchmarks": benchmarks}))
    assert all(len(line) <= 80 for line in lines)
    heads = [line.split() for line in lines if line.split()[0] == "100" or line.split()[0] == "180"]
    assert [one for head in heads for one in head] == list(map(str, lengths))
    assert sum("passkey" in line for line in lines) == 2


def test_status_says_who_computes_what_since_when(found, capsys):
    step = next(iter(found.plan.steps.values()))
    with leased(found, step):
        show_status(found.again())
    told = capsys.readouterr().out
    assert f"running  {step.name}  on {socket.gethostname()}, pid {os.getpid()}, since " in told
    broken = found.store.home / "leases" / f"{step.id}.json"
    broken.write_text("no lease", encoding="utf-8")
    assert not found.running()
    show_status(found.again())
    assert "running" not in capsys.readouterr().out


def test_a_step_that_is_done_does_not_run_though_its_lease_is_still_held(found, capsys):
    steps = list(found.plan.steps.values())
    compute(found, steps)
    with leased(found, steps[-1]):
        assert watch(found)
    told = capsys.readouterr().out.splitlines()
    assert told[-1] in {"# done", "● done"}
    assert not any("running" in line for line in told)


def test_watching_ends_with_the_study_and_prints_what_moved(found, quick):
    text = io.StringIO()
    steps = list(found.plan.steps.values())

    def work() -> None:
        while not text.getvalue():  # the first look is at a study that nobody has begun
            time.sleep(0.01)
        for step in steps:
            compute(found, [step])
            time.sleep(0.02)

    worker = threading.Thread(target=work)
    worker.start()
    assert watch(found, Console(file=text, width=80))
    worker.join()
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("smoke: 12 missing; 0 of 12 cells, about ")
    assert "smoke: 12 done" in lines
    assert lines[-1] in {"# done", "● done"}


def test_watching_ends_when_only_failures_are_left_and_says_so(found, quick):
    steps = list(found.plan.steps.values())
    tuned = next(step for step in steps if step.kind == "finetune")
    after = [s for s in steps if tuned.fingerprint in s.parents.values()]
    compute(found, [step for step in steps if step is not tuned and step not in after])
    found.store.failures.add(tuned, RuntimeError("out of luck"), EXECUTION)
    text = io.StringIO()
    assert not watch(found, Console(file=text, width=80))
    assert "out of luck" in text.getvalue()


def test_a_live_view_leaves_the_terminal_with_the_last_status(found, quick):
    compute(found, list(found.plan.steps.values()))
    text = io.StringIO()
    assert watch(found, Console(file=text, width=80, height=5, force_terminal=True))
    assert "smoke: 12 done" in text.getvalue()
