"""The MLflow projection against a real MLflow on sqlite and a real store."""

import csv
import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.mlflow_pages import pages_of
from catalog.origin import Maker, state_digest
from flows.servers.services import study_pages
from lce_core.access import login_link, server_secret
from lce_core.errors import ServiceError
from lce_core.store.artifacts import Store
from lce_core.store.lease import Lease
from lce_core.store.steps import Step
from lce_core.training.loss_log import LOG
from tasks.tracking import database, initialise, is_current, project
from tasks.tracking.database import QUIET, artifact_root, tracking_uri
from tasks.tracking.live import LiveRuns, shown_live
from tasks.tracking.live import main as live_main
from tasks.tracking.study_content import (
    MAX_CURVE_POINTS,
    MAX_TELEMETRY_POINTS,
    read_plan,
    run_contents,
)
from tests.support.digests import mlflow_digest
from tests.support.studies import move_mlflow, wait_until
from tests.support.tracked_studies import cell, finetune, plan_study

pytestmark = pytest.mark.slow


def new_store(migrated: Path, home: Path) -> Store:
    shutil.copytree(migrated / "mlflow", home / "mlflow")
    move_mlflow(migrated, home)
    store = Store(home)
    store.prepare()
    return store


@pytest.fixture
def store(tmp_path, migrated) -> Store:
    return new_store(migrated, tmp_path / "my home")  # the blank has to survive URIs


@pytest.fixture(scope="module")
def shown(tmp_path_factory, migrated) -> Path:
    store = new_store(migrated, tmp_path_factory.mktemp("shown"))
    plan_study(store)
    report = project(store, "small")
    assert (report.written, report.kept, report.removed) == (6, 0, 0)
    return store.home


@pytest.fixture
def projected(shown, tmp_path) -> Store:
    home = shutil.copytree(shown, tmp_path / "my home")
    move_mlflow(shown, home)
    assert project(Store(home), "small").kept == 6  # it notes the copied files
    return Store(home)


@pytest.fixture(autouse=True)
def _user_settings(monkeypatch) -> Iterator[None]:
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
    if experiment is None:
        return {}
    found = client.search_runs([experiment.experiment_id], "", ViewType.ALL)
    return {run.data.tags["lce.run_key"]: run for run in found}


def parents(found: dict[str, Any]) -> dict[str, str | None]:
    keys = {run.info.run_id: key for key, run in found.items()}
    named = {key: run.data.tags.get("mlflow.parentRunId") for key, run in found.items()}
    return {key: keys[parent] if parent else None for key, parent in named.items()}


def points(store: Store, run: Any, key: str) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    history = MlflowClient(tracking_uri(store.home)).get_metric_history(run.info.run_id, key)
    return [(point.step, point.value) for point in history]


def test_a_method_is_a_run_with_means_and_intervals_and_its_seeds_are_folded_below(store):
    plan_study(store, benchmarks=("passkey", "perplexity"), seeds=(0, 1, 5))
    project(store, "small")
    found = runs(store)
    rows = ("small/toy_llama/none", "small/toy_llama/yarn-tuned")
    expected = {f"{row}/seed-{seed}": row for row in rows for seed in (0, 1, 5)}
    assert parents(found) == {**expected, **dict.fromkeys(rows)}
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
    # Seeds that share a result, as those of frozen weights on one text do, are one run.
    frozen = found["small/toy_llama/none"].data.metrics
    assert frozen["perplexity/single"] == frozen["summary/perplexity_at_target"] == 512
    shown = {name for name in frozen if name.startswith("seed_interval/")}
    passkey = ("passkey/single", "passkey/single.overlap", "summary/passkey_at_target")
    assert shown == {f"seed_interval/{name}" for name in passkey}
    assert "seed_interval/perplexity/single" in method.data.metrics


def test_there_is_a_mean_only_where_every_planned_seed_has_a_value(projected):
    shutil.rmtree(projected.path(cell("none", 1, "passkey", 512, None)))
    project(projected, "small")
    method = runs(projected)["small/toy_llama/none"]
    assert [step for step, _ in points(projected, method, "passkey/single")] == [128]
    assert "summary/passkey_at_target" not in method.data.metrics
    # Its other cell is damaged, so that only one seed is left.
    (projected.path(cell("none", 1, "passkey", 128, None)) / "samples.txt").unlink()
    project(projected, "small")
    method = runs(projected)["small/toy_llama/none"]
    assert "passkey/single" not in method.data.metrics
    assert "So far 1 of them" in method.data.tags["mlflow.note.content"]


def _orphan(client: Any, found: dict[str, Any]) -> None:
    client.delete_run(found["small/toy_llama/none"].info.run_id)
    stray = found["small/toy_llama/yarn-tuned/seed-1"].info.run_id
    client.set_tag(stray, "mlflow.parentRunId", "0" * 32)


def _interrupt(client: Any, found: dict[str, Any]) -> None:
    first, second = sorted(found)[:2]
    client.update_run(found[first].info.run_id, "RUNNING")  # as a killed process leaves it
    client.delete_run(found[second].info.run_id)


@pytest.mark.parametrize("harm", [_orphan, _interrupt])
def test_runs_that_were_deleted_cut_off_or_lost_their_parent_are_mended(projected, harm):
    from mlflow import MlflowClient

    digest = mlflow_digest(projected.home)
    harm(MlflowClient(tracking_uri(projected.home)), runs(projected))
    assert mlflow_digest(projected.home) != digest
    project(projected, "small")
    assert mlflow_digest(projected.home) == digest
    assert len(runs(projected)) == 6


def test_runs_of_one_key_are_shown_once(projected):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri(projected.home))
    copied = runs(projected)["small/toy_llama/none/seed-0"]
    again = client.create_run(copied.info.experiment_id, copied.info.start_time, copied.data.tags)
    client.set_terminated(again.info.run_id, "FINISHED", copied.info.end_time)
    assert project(projected, "small").removed == 1
    project(projected, "small")
    assert len(runs(projected)) == 6


def test_pages_are_noted_for_whoever_links_to_them(projected):
    home = projected.home
    pages = pages_of(home, "small")
    assert pages is not None
    found = runs(projected)
    experiment = found["small/toy_llama/none"].info.experiment_id
    assert pages.methods == (
        f"http://127.0.0.1:5000/#/experiments/{experiment}/runs"
        "?viewStateShareKey=methods&compareRunsMode=CHART&workflowType=machine_learning"
    )
    mean = found["small/toy_llama/yarn-tuned"].info.run_id
    address = pages.run("toy_llama", "yarn", frozen=False)
    assert address == f"http://127.0.0.1:5000/#/experiments/{experiment}/runs/{mean}"
    assert pages.run("toy_llama", "yarn", frozen=True) is None
    path = pages.methods.removeprefix(pages.server)
    secret = server_secret(home, "mlflow")
    assert study_pages(home) == {"small": login_link(pages.server, secret, path)}
    (home / "mlflow" / "pages.json").write_text("half a f", encoding="utf-8")
    assert pages_of(home, "small") is None
    assert not is_current(projected, "small")
    project(projected, "small")
    assert pages_of(home, "small") == pages


def test_a_run_is_a_row_at_a_seed_and_a_metric_has_the_length_as_its_step(projected):
    run = runs(projected)["small/toy_llama/yarn-tuned/seed-1"]
    assert run.data.params["method"] == "yarn"
    assert run.data.params["row"] == "yarn-tuned"
    assert points(projected, run, "passkey/single") == [(128, 1128.0), (512, 1512.0)]
    assert run.data.metrics["summary/passkey_at_target"] == 1512.0
    assert not [key for key in run.data.metrics if key.startswith("seed_interval")]
    assert run.data.metrics["train/grad_norm"] == 2.0
    assert "train/mfu" not in run.data.metrics
    assert run.info.status == "FINISHED"
    files = artifact_root(projected.home).glob(f"*/{run.info.run_id}/artifacts/*")
    assert sorted(path.name for path in files) == ["cells.json", "training.json"]


def test_projecting_twice_even_under_another_name_of_the_place_changes_nothing(projected):
    ids = {run.info.run_id for run in runs(projected).values()}
    digest = mlflow_digest(projected.home)
    link = projected.home.with_name("link")
    link.symlink_to(projected.home)
    for store in (projected, Store(link)):
        assert is_current(store, "small")
        report = project(store, "small")
        assert (report.written, report.kept, report.removed) == (0, 6, 0)
    assert {run.info.run_id for run in runs(projected).values()} == ids
    assert mlflow_digest(projected.home) == digest


@pytest.mark.parametrize("elsewhere", [None, shutil.move, shutil.copytree])
def test_mlflow_is_made_again_equal_where_it_was_deleted_or_its_store_moved_or_was_copied(
    projected, elsewhere
):
    digest, other = mlflow_digest(projected.home), projected
    if elsewhere is None:
        shutil.rmtree(projected.home / "mlflow")
    else:
        other = Store(projected.home.with_name(f"{projected.home.name} elsewhere"))
        elsewhere(projected.home, other.home)
    assert not is_current(other, "small")
    report = project(other, "small")
    assert (report.kept, report.written) == (0, 6)
    assert is_current(other, "small")
    assert mlflow_digest(other.home) == digest
    places = {run.info.artifact_uri for run in runs(other).values()}
    assert all(place.startswith(artifact_root(other.home).as_uri()) for place in places)


def test_a_new_cell_rewrites_its_run_alone_and_the_old_run_is_really_gone(store):
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


def test_rows_that_left_the_study_leave_mlflow_and_not_that_of_another_study(projected):
    plan_study(projected, study="other", seeds=(0,))
    project(projected, "other")
    assert (len(runs(projected)), len(runs(projected, "other"))) == (6, 4)
    assert project(projected, "small").written == 0
    plan_study(projected, seeds=(0,))
    report = project(projected, "small")
    assert (report.written, report.kept, report.removed) == (2, 2, 4)
    assert (len(runs(projected)), len(runs(projected, "other"))) == (4, 4)


def test_currency_follows_plan_records_and_database(projected):
    assert is_current(projected, "small")
    plan_study(projected, benchmarks=("passkey", "needle"), run=False)
    assert not is_current(projected, "small")
    cells = plan_study(projected)
    assert is_current(projected, "small")
    (projected.path(cells[0]) / "record.json").unlink()
    assert not is_current(projected, "small")


def test_seeds_that_a_look_has_made_superfluous_are_not_waited_for(tmp_path):
    store = Store(tmp_path)
    store.prepare()
    plan_study(store)
    plan = read_plan(store, "small")
    assert plan is not None
    for one in plan["cells"]:
        if (one["method"], one["seed"]) == ("none", 1):
            one.update(settled=True, folder=None)
    method = run_contents(store, plan)[0]
    means = [(one.step, one.value) for one in method.metrics if one.key == "passkey/single"]
    assert means == [(128, 128.0), (512, 512.0)]
    assert method.params["seeds"] == "0"


def test_artifacts_that_have_the_names_of_an_earlier_plan_are_shown(tmp_path):
    store = Store(tmp_path)
    store.prepare()
    plan_study(store)
    plan = read_plan(store, "small")
    assert plan is not None
    before = run_contents(store, plan)
    assert len(before) == 6
    for one in (*plan["cells"], *plan["trainings"]):
        kind, _, name = one["folder"].partition("/")
        one["folder"] = f"{kind}/renamed-{name.rpartition('-')[2]}"
    store.studies.save_plan("small", plan, "study.yaml")
    assert run_contents(store, plan) == before
    state = state_digest(store, Maker((), ()), "small")
    (record,) = tmp_path.glob("artifacts/cell/none-s0-passkey-512-*/record.json")
    record.unlink()
    assert state_digest(store, Maker((), ()), "small") != state


def test_a_long_training_curve_is_thinned_and_keeps_its_ends(store):
    plan_study(store, seeds=(0,), curve_rows=2001)
    plan = read_plan(store, "small")
    assert plan is not None
    tuned = run_contents(store, plan)[-1]
    for key, least, most in (
        ("train/loss", 100, MAX_CURVE_POINTS),
        ("train/grad_norm", 20, MAX_TELEMETRY_POINTS),
    ):
        steps = [metric.step for metric in tuned.metrics if metric.key == key]
        assert (steps[0], steps[-1]) == (1, 2001)
        assert least < len(steps) <= most + 1


def test_creating_the_database_survives_a_kill_and_a_race(tmp_path):
    context = multiprocessing.get_context("spawn")
    killed, *racers = (context.Process(target=initialise, args=(tmp_path,)) for _ in range(3))
    killed.start()
    while not (tmp_path / "mlflow" / ".new.db").exists():
        time.sleep(0.01)
    killed.kill()
    killed.join()
    assert not database(tmp_path).exists()
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0, 0]
    assert mlflow_digest(tmp_path)


def live_plan(store: Store) -> tuple[dict[str, Any], Step]:
    plan_study(store, seeds=(0,), run=False)
    plan = read_plan(store, "small")
    assert plan is not None
    return plan, finetune("yarn", 0)


def log_of(store: Store, step: Step, numbers: range, loss: float = 5.0) -> None:
    rows = [{"step": n + 1, "loss": loss / (n + 1), "grad_norm": 2.0, "mfu": None} for n in numbers]
    folder = store.home / "progress" / step.id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOG).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def live_runs(store: Store) -> list[Any]:
    return [run for run in runs(store).values() if "lce.live" in run.data.tags]


def test_new_steps_are_added_and_a_rewritten_log_begins_a_run_anew(store):
    plan, step = live_plan(store)
    live, short = (LiveRuns(store, plan, least_seconds=seconds) for seconds in (0, 3600))
    assert live.update() == 0
    log_of(store, step, range(2))
    assert short.update() == 0
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


def test_a_live_run_goes_when_its_artifact_is_projected_and_stays_without_one(store):
    plan, step = live_plan(store)
    live = LiveRuns(store, plan, least_seconds=0)
    log_of(store, step, range(5))
    live.update()
    with Lease.acquire(store.home / "leases", step.id):  # as a process on another host
        live.close()
        assert live_runs(store)[0].info.status == "RUNNING"
    live.close()
    (failed,) = live_runs(store)
    assert failed.info.status == "FAILED"
    digest = mlflow_digest(store.home)
    project(store, "small")
    assert len(live_runs(store)) == 1
    assert mlflow_digest(store.home) == digest
    live = LiveRuns(store, plan, least_seconds=0)
    live.update()
    plan_study(store, seeds=(0,))
    live.update()
    (ended,) = live_runs(store)
    assert ended.info.status == "FINISHED"
    project(store, "small")
    assert live_runs(store) == []


class _Ended:
    """Stands for `end_of_input`; does something at each poll, then ends the process."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self._actions = list(actions)

    def wait(self, seconds: float) -> bool:
        if self._actions:
            self._actions.pop(0)()
            return False
        return True


def test_of_two_runs_one_shows_what_trains_and_an_error_does_not_end_it(store, monkeypatch):
    _, step = live_plan(store)
    log_of(store, step, range(5))
    show = LiveRuns._show

    def fail(*_: Any) -> int:
        raise ServiceError("a", "b", "c", "d")

    def run_beside() -> None:
        (before,) = live_runs(store)
        assert live_main(store.home, "small", 0.0) == 0
        (after,) = live_runs(store)
        assert (after.info.run_id, after.info.status) == (before.info.run_id, "RUNNING")

    ends = iter(
        (
            _Ended(
                lambda: monkeypatch.setattr(LiveRuns, "_show", fail),
                lambda: monkeypatch.setattr(LiveRuns, "_show", show),
                run_beside,
            ),
            _Ended(int, int),
        )
    )
    monkeypatch.setattr("tasks.tracking.live.end_of_input", lambda: next(ends))
    assert live_main(store.home, "small", 0.0) == 0
    assert live_runs(store)[0].info.status == "FAILED"


def test_a_process_beside_the_flow_shows_what_trains_and_ends_with_it(store):
    _, step = live_plan(store)
    with shown_live(store.home, "small", least_seconds=0.2):
        log_of(store, step, range(5))
        wait_until(lambda: live_runs(store))
    (run,) = live_runs(store)
    assert len(points(store, run, "train/loss")) == 5
    assert run.info.status == "FAILED"  # it never became an artifact
    assert (store.home / "logs" / "live-tracking.log").read_text(encoding="utf-8") == ""
