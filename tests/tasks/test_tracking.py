"""The MLflow projection against a real MLflow on sqlite and a real store.

Strategy: commit small records through Store.ensure, project them, and read them back through
MLflow's own client; whatever must not change is compared by logical digest or by run id.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lce_core.errors import SpecError
from lce_core.store.artifacts import Attempt, Store
from lce_core.store.steps import Step
from tasks.run_content import MAX_CURVE_POINTS, read_plan, run_contents
from tasks.tracking import (
    artifact_root,
    database,
    initialise,
    is_current,
    logical_digest,
    project,
    tracking_uri,
)
from tests.support.free_steps import free_step
from tests.support.repository import ROOT

pytestmark = pytest.mark.slow

LENGTHS = (128, 512)
TARGET = 512


def finetune(method: str, seed: int, rows: int = 5) -> Step:
    spec = {"method": method, "seed": seed, "rows": rows}
    return free_step("finetune", f"{method}-s{seed}", spec, {})


def cell(method: str, seed: int, benchmark: str, length: int, parent: Step | None) -> Step:
    spec = {"method": {"name": method, "version": 1, "scale": 4.0}, "seed": seed}
    spec |= {"benchmark": benchmark, "eval_length": length}
    name = f"{method}-s{seed}-{benchmark}-{length}"
    return free_step("cell", name, spec, {"checkpoint": parent} if parent else {})


def compute(attempt: Attempt) -> dict[str, Any]:
    spec = attempt.step.spec
    if attempt.step.kind == "finetune":
        losses = [{"step": n + 1, "loss": 5.0 / (n + 1)} for n in range(spec["rows"])]
        lines = [json.dumps(row) + "\n" for row in losses]
        (attempt.out / "loss.jsonl").write_text("".join(lines), encoding="utf-8")
        return {"final_loss": losses[-1]["loss"], "steps": len(losses)}
    (attempt.out / "samples.txt").write_text("x", encoding="utf-8")
    value = 1000.0 * spec["seed"] + spec["eval_length"]
    scores = [{"metric": "accuracy", "value": value}, {"metric": "overlap", "value": value / 2}]
    return {"scores": scores, "default_metric": "accuracy", "kernel": "sdpa"}


def plan_study(
    store: Store,
    benchmarks: tuple[str, ...] = ("passkey",),
    seeds: tuple[int, ...] = (0, 1),
    lengths: tuple[int, ...] = LENGTHS,
    study: str = "small",
    run: bool = True,
    curve_rows: int = 5,
) -> list[Step]:
    """Plans `none` frozen and `yarn` tuned, and commits every step of it; returns the cells."""
    cells, plan_cells, trainings = [], [], []
    for method, tuned in (("none", False), ("yarn", True)):
        for seed in seeds:
            parent = finetune(method, seed, curve_rows) if tuned else None
            if parent is not None:
                trainings.append(
                    {
                        "fingerprint": parent.fingerprint,
                        "checkpoint": parent.short,
                        "folder": parent.folder,
                        "kind": "finetune",
                        "base_model": "toy_llama",
                        "method": method,
                        "seed": seed,
                    }
                )
                if run:
                    store.ensure(parent, compute, {})
            for benchmark in benchmarks:
                for length in lengths:
                    step = cell(method, seed, benchmark, length, parent)
                    cells.append(step)
                    axes = {"method": method, "frozen": not tuned, "seed": seed}
                    plan_cells.append(planned(step, benchmark, length, axes, parent))
                    if run:
                        store.ensure(step, compute, {})
    store.save_plan(
        study,
        {
            "study": study,
            "hypothesis": "YaRN extends, none does not.",
            "target_context": TARGET,
            "base_contexts": {"toy_llama": 128},
            "cells": plan_cells,
            "trainings": trainings,
        },
        "study.yaml",
    )
    return cells


def planned(
    step: Step, benchmark: str, length: int, axes: dict[str, Any], parent: Step | None
) -> dict[str, Any]:
    return {
        "fingerprint": step.fingerprint,
        "cell": step.short,
        "folder": step.folder,
        "base_model": "toy_llama",
        "exact_attention": True,
        "benchmark": benchmark,
        "task": "single",
        "eval_length": length,
        "profile": "tiny",
        "train_length": 128 if axes["frozen"] else TARGET,
        "checkpoint": parent.short if parent else None,
        "unavailable": None,
        "blocked_by": [parent.short] if parent else [],
        **axes,
    }


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int | None]]:
    """A home whose database four processes initialised at once, and their exit codes."""
    home = tmp_path_factory.mktemp("initialised")
    context = multiprocessing.get_context("spawn")
    racers = [context.Process(target=initialise, args=(home,)) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    return home, [racer.exitcode for racer in racers]


@pytest.fixture
def store(tmp_path: Path, race: tuple[Path, list[int | None]]) -> Store:
    # Migrations take seconds, a copy does not. The blank in the name has to survive URIs.
    home = tmp_path / "my home"
    shutil.copytree(race[0], home)
    store = Store(home)
    store.prepare()
    return store


@pytest.fixture(autouse=True)
def _user_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Variables of the user's that would send runs elsewhere if they were heeded."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    yield
    assert os.environ["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:9"


def runs(store: Store, study: str = "small") -> dict[str, Any]:
    from mlflow import MlflowClient
    from mlflow.entities import ViewType

    client = MlflowClient(tracking_uri(store.home))
    experiment = client.get_experiment_by_name(study)
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], "", ViewType.ALL)
    return {run.data.tags["lce.run_key"]: run for run in found}


def test_a_run_is_a_row_at_a_seed_and_a_metric_has_the_length_as_its_step(store: Store) -> None:
    from mlflow import MlflowClient

    plan_study(store)
    report = project(store, "small")
    assert (report.written, report.kept, report.removed) == (4, 0, 0)
    run = runs(store)["small/toy_llama/yarn-tuned/seed-1"]
    assert run.data.params["method"] == "yarn"
    assert run.data.params["row"] == "yarn-tuned"
    assert run.data.params["method.scale"] == "4.0"
    history = MlflowClient(tracking_uri(store.home)).get_metric_history(
        run.info.run_id, "passkey/single"
    )
    assert [(point.step, point.value) for point in history] == [(128, 1128.0), (512, 1512.0)]
    assert run.data.metrics["summary/passkey_at_target"] == 1512.0
    assert run.data.metrics["train/loss"] == 1.0
    assert run.info.status == "FINISHED"
    assert run.info.end_time == max(point.timestamp for point in history)
    files = artifact_root(store.home).glob(f"*/{run.info.run_id}/artifacts/*")
    assert sorted(path.name for path in files) == ["cells.json", "training.json"]


def test_projecting_twice_changes_nothing(store: Store) -> None:
    plan_study(store)
    project(store, "small")
    ids, digest = {run.info.run_id for run in runs(store).values()}, logical_digest(store.home)
    report = project(store, "small")
    assert (report.written, report.kept, report.removed) == (0, 4, 0)
    assert {run.info.run_id for run in runs(store).values()} == ids
    assert logical_digest(store.home) == digest


def test_a_deleted_database_comes_back_equal(store: Store) -> None:
    plan_study(store)
    project(store, "small")
    digest = logical_digest(store.home)
    shutil.rmtree(store.home / "mlflow")
    assert not is_current(store, "small")
    project(store, "small")
    assert logical_digest(store.home) == digest


def test_a_new_cell_rewrites_its_run_alone_and_the_old_run_is_really_gone(store: Store) -> None:
    plan_study(store)
    removed = cell("none", 0, "passkey", 512, None)
    kept_aside = store.home / "aside"
    store.path(removed).rename(kept_aside)
    project(store, "small")
    before = runs(store)
    assert "summary/passkey_at_target" not in before["small/toy_llama/none/seed-0"].data.metrics
    kept_aside.rename(store.path(removed))
    assert not is_current(store, "small")
    report = project(store, "small")
    assert (report.written, report.kept, report.removed) == (1, 3, 1)
    after = runs(store)  # deleted ones included
    assert len(after) == 4
    changed = {key for key in after if after[key].info.run_id != before[key].info.run_id}
    assert changed == {"small/toy_llama/none/seed-0"}
    gone = before["small/toy_llama/none/seed-0"].info.run_id
    assert list(artifact_root(store.home).glob(f"*/{gone}")) == []


def test_rows_that_left_the_study_leave_mlflow(store: Store) -> None:
    plan_study(store)
    project(store, "small")
    plan_study(store, seeds=(0,))
    report = project(store, "small")
    assert (report.written, report.kept, report.removed) == (0, 2, 2)
    assert len(runs(store)) == 2


def test_half_written_and_binned_runs_are_written_again(store: Store) -> None:
    from mlflow import MlflowClient

    plan_study(store)
    project(store, "small")
    digest = logical_digest(store.home)
    client = MlflowClient(tracking_uri(store.home))
    first, second = sorted(runs(store))[:2]
    client.update_run(runs(store)[first].info.run_id, "RUNNING")  # as a killed process leaves it
    client.delete_run(runs(store)[second].info.run_id)
    assert project(store, "small").removed == 2
    assert logical_digest(store.home) == digest


def test_currency_follows_plan_records_and_database(store: Store) -> None:
    cells = plan_study(store)
    assert not is_current(store, "small")
    project(store, "small")
    assert is_current(store, "small")
    assert not is_current(store, "another")
    plan_study(store, benchmarks=("passkey", "needle"), run=False)
    assert not is_current(store, "small")
    plan_study(store)
    assert is_current(store, "small")
    (store.path(cells[0]) / "record.json").unlink()
    assert not is_current(store, "small")


def test_two_studies_share_cells_and_keep_apart(store: Store) -> None:
    plan_study(store)
    plan_study(store, study="other", seeds=(0,))
    project(store, "small")
    project(store, "other")
    assert len(runs(store)) == 4
    assert len(runs(store, "other")) == 2
    assert project(store, "small").written == 0


def test_a_damaged_artifact_is_not_shown(store: Store) -> None:
    cells = plan_study(store)
    (store.path(cells[0]) / "samples.txt").unlink()
    project(store, "small")
    run = runs(store)["small/toy_llama/none/seed-0"]
    assert "1 of 2 cells" in run.data.tags["mlflow.note.content"]


def test_a_long_training_curve_is_thinned_and_keeps_its_ends(store: Store) -> None:
    plan_study(store, seeds=(0,), curve_rows=2001)
    plan = read_plan(store, "small")
    assert plan is not None
    tuned = run_contents(store, plan)[1]
    steps = [metric.step for metric in tuned.metrics if metric.key == "train/loss"]
    assert (steps[0], steps[-1]) == (1, 2001)
    assert 100 < len(steps) <= MAX_CURVE_POINTS + 1


def test_an_unplanned_study_is_refused_with_the_way_out(store: Store) -> None:
    with pytest.raises(SpecError, match="lce run nothing"):
        project(store, "nothing")


def test_asking_whether_a_large_study_is_current_is_quick_and_loads_no_mlflow(
    store: Store,
) -> None:
    plan_study(store, lengths=tuple(range(1, 501)), run=False)  # 2,000 cells
    code = (
        "import sys, time, pathlib; import tasks.tracking as t;"
        " from lce_core.store.artifacts import Store;"
        " s = Store(pathlib.Path(sys.argv[1])); c = time.process_time(); t.is_current(s, 'small');"
        " print(time.process_time() - c); sys.exit('mlflow' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(store.home)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert float(answer.stdout) < 0.5  # 0.03 s of the processor, whoever else uses it


def test_processes_that_meet_a_missing_database_create_it_once(
    race: tuple[Path, list[int | None]],
) -> None:
    home, exit_codes = race
    assert exit_codes == [0, 0, 0, 0]
    assert logical_digest(home)


def test_creating_the_database_survives_a_kill(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    killed = context.Process(target=initialise, args=(tmp_path,))
    killed.start()
    while not (tmp_path / "mlflow" / ".new.db").exists():
        time.sleep(0.01)
    killed.kill()
    killed.join()
    assert not database(tmp_path).exists()
    initialise(tmp_path)
    assert logical_digest(tmp_path)
