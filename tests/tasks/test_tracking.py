"""The MLflow projection against a real MLflow on sqlite and a real store.

Strategy: commit small records through Store.ensure, project them, and read them back through
MLflow's own client; whatever must not change is compared by logical digest or by run id.
"""

from __future__ import annotations

import csv
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

from catalog.mlflow_pages import pages_of
from flows.servers.services import study_pages
from lce_core.access import login_link, server_secret
from lce_core.store.artifacts import Store
from lce_core.store.steps import Step
from lce_core.training import run as training
from lce_core.training.loss_log import LOG, read_entries
from tasks.tracking import (
    artifact_root,
    database,
    initialise,
    is_current,
    logical_digest,
    project,
    tracking_uri,
)
from tasks.tracking.database import QUIET, has_usable_database
from tasks.tracking.live import LiveRuns, shown_live
from tasks.tracking.seed_content import MAX_CURVE_POINTS, MAX_TELEMETRY_POINTS
from tasks.tracking.study_content import read_plan, run_contents
from tests.support.repository import ROOT
from tests.support.studies import move_mlflow, wait_until
from tests.support.tracked_studies import cell, finetune, plan_study
from tests.support.training_jobs import job_maker, packed_rows

pytestmark = pytest.mark.slow


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
    move_mlflow(race[0], home)
    store = Store(home)
    store.prepare()
    return store


@pytest.fixture(autouse=True)
def _user_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Variables of the user's that would send runs elsewhere if they were heeded."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    monkeypatch.delenv("MLFLOW_LOGGING_LEVEL", raising=False)
    before = mlflow_variables()
    yield
    assert mlflow_variables() == before


def mlflow_variables() -> dict[str, str]:
    names = [key for key in os.environ if key.startswith("MLFLOW_") or key in QUIET]
    return {key: os.environ[key] for key in names}


def runs(store: Store, study: str = "small") -> dict[str, Any]:
    from mlflow import MlflowClient
    from mlflow.entities import ViewType

    client = MlflowClient(tracking_uri(store.home))
    experiment = client.get_experiment_by_name(study)
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], "", ViewType.ALL)
    return {run.data.tags["lce.run_key"]: run for run in found}


def parents(found: dict[str, Any]) -> dict[str, str | None]:
    """Keys of runs to those of the runs that they are folded below."""
    keys = {run.info.run_id: key for key, run in found.items()}
    named = {key: run.data.tags.get("mlflow.parentRunId") for key, run in found.items()}
    return {key: keys[parent] if parent else None for key, parent in named.items()}


def points(store: Store, run: Any, key: str) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    history = MlflowClient(tracking_uri(store.home)).get_metric_history(run.info.run_id, key)
    return [(point.step, point.value) for point in history]


def test_a_method_is_a_run_with_means_and_intervals_and_its_seeds_are_folded_below(
    store: Store,
) -> None:
    plan_study(store, seeds=(0, 1, 5))
    project(store, "small")
    found = runs(store)
    assert parents(found) == {
        "small/toy_llama/none": None,
        **{f"small/toy_llama/none/seed-{seed}": "small/toy_llama/none" for seed in (0, 1, 5)},
        "small/toy_llama/yarn-tuned": None,
        **{
            f"small/toy_llama/yarn-tuned/seed-{seed}": "small/toy_llama/yarn-tuned"
            for seed in (0, 1, 5)
        },
    }
    method = found["small/toy_llama/yarn-tuned"]
    assert method.data.params["seeds"] == "0, 1, 5"
    assert method.data.params["method.scale"] == "4.0"
    assert "seed" not in method.data.params
    # A seed's value is 1000 seed + length, so the mean is 2000 + length and the deviation 2645.75:
    # half an interval is t(0.975, 2) = 4.302653 times that, divided by the root of 3.
    assert points(store, method, "passkey/single") == [(128, 2128.0), (512, 2512.0)]
    half = points(store, method, "seed_interval/passkey/single")
    assert [step for step, _ in half] == [128, 512]
    assert [value for _, value in half] == pytest.approx([6572.411] * 2, abs=1e-3)
    assert points(store, method, "summary/passkey_at_target") == [(0, 2512.0)]
    assert method.data.metrics["train/loss"] == 1.0
    assert "seed_interval/train/loss" not in method.data.metrics
    (means,) = artifact_root(store.home).glob(f"*/{method.info.run_id}/artifacts/means.csv")
    rows = list(csv.DictReader(means.read_text(encoding="utf-8").splitlines()))
    (row,) = [row for row in rows if (row["metric"], row["step"]) == ("passkey/single", "128")]
    assert float(row["mean"]) == 2128
    assert float(row["low"]) == pytest.approx(2128 - 6572.411, abs=1e-3)
    assert float(row["high"]) == pytest.approx(2128 + 6572.411, abs=1e-3)
    assert row["seeds"] == "3"


def test_one_seed_has_a_mean_and_no_interval(store: Store) -> None:
    plan_study(store, seeds=(1,))
    project(store, "small")
    metrics = runs(store)["small/toy_llama/none"].data.metrics
    assert metrics["passkey/single"] == 1512.0
    assert not [key for key in metrics if key.startswith("seed_interval")]


def test_there_is_a_mean_only_where_every_planned_seed_has_a_value(store: Store) -> None:
    plan_study(store)
    shutil.rmtree(store.path(cell("none", 1, "passkey", 512, None)))
    project(store, "small")
    method = runs(store)["small/toy_llama/none"]
    assert [step for step, _ in points(store, method, "passkey/single")] == [128]
    assert "summary/passkey_at_target" not in method.data.metrics
    shutil.rmtree(store.path(cell("none", 1, "passkey", 128, None)))
    project(store, "small")
    method = runs(store)["small/toy_llama/none"]
    assert "passkey/single" not in method.data.metrics
    assert "So far 1 of them" in method.data.tags["mlflow.note.content"]


def test_seeds_that_lost_their_parent_are_folded_again(store: Store) -> None:
    from mlflow import MlflowClient

    plan_study(store)
    project(store, "small")
    digest = logical_digest(store.home)
    found, client = runs(store), MlflowClient(tracking_uri(store.home))
    client.delete_run(found["small/toy_llama/none"].info.run_id)
    stray = found["small/toy_llama/yarn-tuned/seed-1"].info.run_id
    client.set_tag(stray, "mlflow.parentRunId", "0" * 32)
    assert logical_digest(store.home) != digest
    report = project(store, "small")
    assert (report.written, report.kept, report.removed) == (1, 5, 1)
    assert logical_digest(store.home) == digest


def test_runs_of_one_key_are_shown_once(store: Store) -> None:
    from mlflow import MlflowClient

    plan_study(store)
    project(store, "small")
    client = MlflowClient(tracking_uri(store.home))
    copied = runs(store)["small/toy_llama/none/seed-0"]
    again = client.create_run(copied.info.experiment_id, copied.info.start_time, copied.data.tags)
    client.set_terminated(again.info.run_id, "FINISHED", copied.info.end_time)
    assert project(store, "small").removed == 1
    project(store, "small")
    assert len(runs(store)) == 6


def test_pages_are_noted_for_whoever_links_to_them(store: Store) -> None:
    plan_study(store)
    assert pages_of(store.home, "small") is None
    project(store, "small")
    pages = pages_of(store.home, "small")
    assert pages is not None
    found = runs(store)
    experiment = found["small/toy_llama/none"].info.experiment_id
    assert pages.methods == (
        f"http://127.0.0.1:5000/#/experiments/{experiment}/runs"
        "?viewStateShareKey=methods&compareRunsMode=CHART&workflowType=machine_learning"
    )
    seed = found["small/toy_llama/yarn-tuned/seed-1"].info.run_id
    address = pages.run("toy_llama", "yarn", frozen=False, seed=1)
    assert address == f"http://127.0.0.1:5000/#/experiments/{experiment}/runs/{seed}"
    assert pages.run("toy_llama", "yarn", frozen=True) is None
    path = pages.methods.removeprefix(pages.server)
    secret = server_secret(store.home, "mlflow")
    assert study_pages(store.home) == {"small": login_link(pages.server, secret, path)}
    running = store.home / "services" / "mlflow.json"
    running.write_text('{"url": "http://127.0.0.1:5005"}', encoding="utf-8")
    moved = pages_of(store.home, "small")
    assert moved is not None
    assert moved.seeds.startswith(f"http://127.0.0.1:5005/#/experiments/{experiment}/runs?")
    (store.home / "mlflow" / "pages.json").write_text("half a f", encoding="utf-8")
    assert pages_of(store.home, "small") is None
    assert not is_current(store, "small")
    project(store, "small")
    assert pages_of(store.home, "small") == moved


def test_a_run_is_a_row_at_a_seed_and_a_metric_has_the_length_as_its_step(store: Store) -> None:
    from mlflow import MlflowClient

    plan_study(store)
    report = project(store, "small")
    assert (report.written, report.kept, report.removed) == (6, 0, 0)
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
    assert run.data.metrics["train/grad_norm"] == 2.0
    assert "train/mfu" not in run.data.metrics
    assert run.info.status == "FINISHED"
    assert run.info.end_time == max(point.timestamp for point in history)
    files = artifact_root(store.home).glob(f"*/{run.info.run_id}/artifacts/*")
    assert sorted(path.name for path in files) == ["cells.json", "training.json"]


def test_projecting_twice_changes_nothing(store: Store) -> None:
    plan_study(store)
    project(store, "small")
    ids, digest = {run.info.run_id for run in runs(store).values()}, logical_digest(store.home)
    report = project(store, "small")
    assert (report.written, report.kept, report.removed) == (0, 6, 0)
    assert {run.info.run_id for run in runs(store).values()} == ids
    assert logical_digest(store.home) == digest


def test_a_deleted_database_comes_back_equal(store: Store) -> None:
    plan_study(store)
    project(store, "small")
    digest = logical_digest(store.home)
    shutil.rmtree(store.home / "mlflow")
    assert not is_current(store, "small")
    report = project(store, "small")
    assert (report.kept, report.written) == (0, 6)
    assert logical_digest(store.home) == digest


@pytest.mark.parametrize("copied", [False, True], ids=["moved", "copied"])
def test_a_store_elsewhere_has_mlflow_made_again_with_files_of_its_own(
    store: Store, copied: bool
) -> None:
    plan_study(store)
    project(store, "small")
    digest = logical_digest(store.home)
    other = Store(store.home.with_name(f"{store.home.name} elsewhere"))
    (shutil.copytree if copied else shutil.move)(store.home, other.home)
    assert not is_current(other, "small")
    report = project(other, "small")
    assert (report.kept, report.written) == (0, 6)
    assert is_current(other, "small")
    assert logical_digest(other.home) == digest
    places = {run.info.artifact_uri for run in runs(other).values()}
    assert all(place.startswith(artifact_root(other.home).as_uri()) for place in places)
    assert store.home.exists() == copied


def test_a_store_under_another_name_of_its_place_keeps_its_mlflow(store: Store) -> None:
    plan_study(store)
    project(store, "small")
    link = store.home.with_name("link")
    link.symlink_to(store.home)
    assert is_current(Store(link), "small")
    assert project(Store(link), "small").kept == 6


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
    assert (report.written, report.kept, report.removed) == (2, 4, 2)
    after = runs(store)  # deleted ones included
    assert len(after) == 6
    changed = {key for key in after if after[key].info.run_id != before[key].info.run_id}
    assert changed == {"small/toy_llama/none", "small/toy_llama/none/seed-0"}
    assert parents(after)["small/toy_llama/none/seed-1"] == "small/toy_llama/none"
    gone = before["small/toy_llama/none/seed-0"].info.run_id
    assert list(artifact_root(store.home).glob(f"*/{gone}")) == []


def test_rows_that_left_the_study_leave_mlflow(store: Store) -> None:
    plan_study(store)
    project(store, "small")
    plan_study(store, seeds=(0,))
    report = project(store, "small")
    assert (report.written, report.kept, report.removed) == (2, 2, 4)
    assert len(runs(store)) == 4


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
    assert len(runs(store)) == 6
    assert len(runs(store, "other")) == 4
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
    tuned = run_contents(store, plan)[-1]
    steps = [metric.step for metric in tuned.metrics if metric.key == "train/loss"]
    assert (steps[0], steps[-1]) == (1, 2001)
    assert 100 < len(steps) <= MAX_CURVE_POINTS + 1
    norms = [metric.step for metric in tuned.metrics if metric.key == "train/grad_norm"]
    assert (norms[0], norms[-1]) == (1, 2001)
    assert 20 < len(norms) <= MAX_TELEMETRY_POINTS + 1


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


# Training in progress


def live_plan(store: Store) -> tuple[dict[str, Any], Step]:
    """A planned study of which nothing is computed, and one of its training runs."""
    plan_study(store, seeds=(0,), run=False)
    plan = read_plan(store, "small")
    assert plan is not None
    return plan, finetune("yarn", 0)


def log_of(store: Store, step: Step, numbers: range, loss: float = 5.0) -> None:
    """Writes a loss log as a trainer does."""
    rows = [{"step": n + 1, "loss": loss / (n + 1), "grad_norm": 2.0, "mfu": None} for n in numbers]
    folder = store.home / "progress" / step.id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOG).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def live_runs(store: Store) -> list[Any]:
    return [run for run in runs(store).values() if "lce.live" in run.data.tags]


def test_a_trainers_steps_are_in_mlflow_before_it_has_ended(store: Store, tmp_path: Path) -> None:
    plan, step = live_plan(store)
    live, rows = LiveRuns(store, plan, least_seconds=0), tmp_path / "rows"
    rows.mkdir()
    make = job_maker(packed_rows(rows), tmp_path)
    job = make(num_steps=3, resume=store.home / "progress" / step.id)
    seen: list[int] = []

    def report(entry: dict[str, Any]) -> None:
        assert not (job.out / "model").exists()
        seen.append(live.update())

    training.run(job, report)
    assert sum(seen) == 3
    (run,) = live_runs(store)
    entries = read_entries(job.out / LOG)
    for key in ("loss", "grad_norm", "learning_rate", "tokens_per_second", "peak_memory_bytes"):
        assert points(store, run, f"train/{key}") == [(one["step"], one[key]) for one in entries]
    assert run.info.status == "RUNNING"
    assert entries[0]["peak_memory_bytes"] > 1 << 20


def test_new_steps_are_added_and_a_rewritten_log_begins_a_run_anew(store: Store) -> None:
    plan, step = live_plan(store)
    live = LiveRuns(store, plan, least_seconds=0)
    assert live.update() == 0
    log_of(store, step, range(2))
    assert live.update() == 2
    log_of(store, step, range(4))
    assert live.update() == 2
    assert live.update() == 0
    (before,) = live_runs(store)
    assert points(store, before, "train/loss") == [(n + 1, 5.0 / (n + 1)) for n in range(4)]
    log_of(store, step, range(3), loss=6.0)
    assert live.update() == 3
    (after,) = live_runs(store)
    assert after.info.run_id != before.info.run_id
    assert points(store, after, "train/loss") == [(n + 1, 6.0 / (n + 1)) for n in range(3)]
    # Another process, which finds the run there, shows it once as well.
    assert LiveRuns(store, plan, least_seconds=0).update() == 3
    assert len(live_runs(store)) == 1


def test_a_live_run_goes_when_its_artifact_is_projected_and_stays_without_one(
    store: Store,
) -> None:
    plan, step = live_plan(store)
    live = LiveRuns(store, plan, least_seconds=0)
    log_of(store, step, range(5))
    live.update()
    live.close()
    (failed,) = live_runs(store)
    assert failed.info.status == "FAILED"
    digest = logical_digest(store.home)
    project(store, "small")
    assert len(live_runs(store)) == 1
    assert logical_digest(store.home) == digest
    live = LiveRuns(store, plan, least_seconds=0)
    live.update()
    plan_study(store, seeds=(0,))
    live.update()
    (ended,) = live_runs(store)
    assert ended.info.status == "FINISHED"
    project(store, "small")
    assert live_runs(store) == []
    assert not is_current(store, "another")


def test_a_short_training_run_is_not_shown(store: Store) -> None:
    plan, step = live_plan(store)
    log_of(store, step, range(5))
    live = LiveRuns(store, plan, least_seconds=3600)
    assert live.update() == 0
    live.close()
    assert runs_if_any(store) == []


def runs_if_any(store: Store) -> list[Any]:
    from mlflow import MlflowClient

    if not has_usable_database(
        store.home
    ):  # a client would make the database itself, beside who is about to
        return []
    found = MlflowClient(tracking_uri(store.home)).get_experiment_by_name("small")
    return [] if found is None else list(runs(store).values())


def test_a_process_beside_the_flow_shows_what_trains_and_ends_with_it(store: Store) -> None:
    database(store.home).unlink()  # the process beside the flow creates it
    _, step = live_plan(store)
    with shown_live(store.home, "small", least_seconds=0.2):
        log_of(store, step, range(5))
        wait_until(lambda: runs_if_any(store), 200)
    (run,) = live_runs(store)
    assert len(points(store, run, "train/loss")) == 5
    assert run.info.status == "FAILED"  # it never became an artifact
    assert (store.home / "logs" / "live-tracking.log").read_text(encoding="utf-8") == ""
