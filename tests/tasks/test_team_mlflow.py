"""MLflow as a team has it: a real server, over HTTP, that wants a password."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.mlflow_pages import pages_of
from flows.servers.daemons import answers, environment
from flows.servers.doctor import doctor
from flows.servers.services import study_pages
from flows.settings import mlflow_environment, mlflow_server
from lce_core.access import SECRET_VARIABLE
from lce_core.errors import ServiceError, SpecError
from lce_core.store.artifacts import Store
from lce_core.store.records import write_json
from tasks import projections
from tasks.tracking import TeamServer, database, initialise, is_current, project
from tasks.tracking.destinations import STORE
from tasks.tracking.live import LiveRuns
from tasks.tracking.registry import register
from tasks.tracking.study_content import read_plan
from tests.support.ports import unused_port
from tests.support.repository import ROOT
from tests.support.studies import wait_until
from tests.support.tracked_studies import cell, compute, plan_study

pytestmark = pytest.mark.slow
SECRET = "of-the-team"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the team's server."""
    folder = tmp_path_factory.mktemp("team")
    initialise(folder)
    port = unused_port()
    address, log = f"http://127.0.0.1:{port}", folder / "server.log"
    command = [sys.executable, "-m", "tasks.tracking.guarded_server"]
    command += ["--home", str(folder), "--port", str(port)]
    surroundings = {**environment(folder), SECRET_VARIABLE: SECRET}
    # New experiments keep their files behind the server, as those of a shared server do.
    surroundings["_MLFLOW_SERVER_ARTIFACT_ROOT"] = "mlflow-artifacts:/"
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, env=surroundings, cwd=folder)
    try:
        wait_until(lambda: answers(f"{address}/health"), 90)
        yield address
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "lce")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", SECRET)


def store_at(folder: Path, study: str) -> Store:
    store = Store(folder)
    store.prepare()
    plan_study(store, study=study)
    return store


def runs(team: str, study: str) -> dict[tuple[str, str], Any]:
    """Runs of a study on the team's server, by key and store."""
    from mlflow import MlflowClient

    client = MlflowClient(team)
    experiment = client.get_experiment_by_name(study)
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id])
    return {(run.data.tags.get("lce.run_key", ""), run.data.tags[STORE]): run for run in found}


def test_a_study_is_on_the_teams_server_and_not_in_the_store(team: str, tmp_path: Path) -> None:
    store = store_at(tmp_path, "one")
    assert not is_current(store, "one", team)
    report = project(store, "one", team)
    assert (report.written, report.kept) == (6, 0)
    assert is_current(store, "one", team)
    assert not is_current(store, "one")
    assert not database(tmp_path).exists()
    shown = {key for key, _ in runs(team, "one")}
    rows = ("none", "yarn-tuned")
    assert shown == {
        f"one/toy_llama/{row}{seed}" for row in rows for seed in ("", "/seed-0", "/seed-1")
    }
    again = project(store, "one", team)
    assert (again.written, again.kept, again.removed) == (0, 6, 0)


def test_files_of_runs_are_on_the_server(team: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    project(store_at(tmp_path, "files"), "files", team)
    client = MlflowClient(team)
    (run,) = [run for (key, _), run in runs(team, "files").items() if key.endswith("none/seed-0")]
    assert run.info.artifact_uri.startswith("mlflow-artifacts:")
    path = client.download_artifacts(run.info.run_id, "cells.json", str(tmp_path))
    assert len(json.loads(Path(path).read_text(encoding="utf-8"))) == 2


def test_two_stores_change_only_their_own_runs(team: str, tmp_path: Path) -> None:
    first, second = store_at(tmp_path / "1", "shared"), store_at(tmp_path / "2", "shared")
    project(first, "shared", team)
    before = {run.info.run_id for run in runs(team, "shared").values()}
    project(second, "shared", team)
    found = runs(team, "shared")
    assert len(found) == 12
    first.ensure(cell("yarn", 3, "passkey", 128, None), compute, {})
    plan_study(first, study="shared", seeds=(0, 1, 2))
    assert project(first, "shared", team).removed == 2  # the means over seeds
    left = {run.info.run_id for run in runs(team, "shared").values()}
    assert len(left) == 14
    others = {run.info.run_id for run in found.values()} - before
    assert others < left


def test_data_sets_are_logged_with_their_digests(team: str, tmp_path: Path) -> None:
    project(store_at(tmp_path, "data"), "data", team)
    for run in runs(team, "data").values():
        (one,) = run.inputs.dataset_inputs
        assert one.dataset.name == "local_text"
        assert one.dataset.digest == "0123456789abcdef0123456789abcdef0123"
        assert json.loads(one.dataset.source) == {"name": "local_text", "version": 1}
        assert [(tag.key, tag.value) for tag in one.tags] == [("mlflow.data.context", "evaluation")]


def test_pages_of_the_study_are_on_the_teams_server(team: str, tmp_path: Path) -> None:
    store = store_at(tmp_path, "pages")
    project(store, "pages", team)
    pages = pages_of(tmp_path, "pages")
    assert pages is not None
    assert pages.methods.startswith(f"{team}/#/experiments/")
    assert study_pages(tmp_path) == {"pages": pages.methods}


def test_a_training_run_is_shown_while_it_trains(team: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    plan_study(store, study="live", run=False)
    plan = read_plan(store, "live")
    assert plan is not None
    (training, _) = plan["trainings"]
    log = store.home / "progress" / training["checkpoint"] / "loss.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text('{"step": 1, "loss": 2.0}\n', encoding="utf-8")
    live = LiveRuns(store, plan, 0.0, team)
    assert live.update() == 1
    (run,) = runs(team, "live").values()
    assert run.info.status == "RUNNING"
    live.close()
    (run,) = runs(team, "live").values()
    assert run.info.status == "FAILED"
    project(store, "live", team)
    assert len(runs(team, "live")) == 1  # a failed run stays


def test_an_exported_model_is_registered_and_stays(team: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient
    from mlflow.artifacts import download_artifacts

    store = store_at(tmp_path / "home", "models")
    project(store, "models", team)
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    plan = read_plan(store, "models")
    assert plan is not None
    where, about = TeamServer(store.home, team), {"lce.variant": "yarn-tuned"}
    addresses = [register(where, plan, folder, "long", about) for _ in range(2)]
    assert addresses == ["models:/long/1", "models:/long/2"]
    assert MlflowClient(team).get_model_version("long", "2").tags == about
    assert project(store, "models", team).removed == 0
    os.environ["MLFLOW_TRACKING_URI"] = team
    try:
        copy = download_artifacts("models:/long/1", dst_path=str(tmp_path / "copy"))
    finally:
        del os.environ["MLFLOW_TRACKING_URI"]
    assert (Path(copy) / "config.json").read_text(encoding="utf-8") == "{}"


@pytest.mark.parametrize("down", [True, False])
def test_a_server_that_does_not_answer_or_refuses_stops_no_run(
    team: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    down: bool,
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong")
    store_at(tmp_path, "down")
    server = NOWHERE if down else team
    assert sum(projections.record(tmp_path, "down", server).values()) == 8
    said = capsys.readouterr().err
    assert said.startswith(f"lce: MLflow server {server}: got ")
    assert "lce rebuild mlflow" in said
    assert "wrong" not in said
    with pytest.raises(ServiceError):
        projections.rebuild_mlflow(tmp_path, server)
    monkeypatch.setenv("LCE_MLFLOW_URI", server)
    (check,) = [one for one in doctor(tmp_path) if one.name == "MLflow server"]
    assert not check.ok


def test_the_server_is_named_by_either_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mlflow_server(tmp_path) is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///a.db")
    assert mlflow_server(tmp_path) is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org/")
    assert mlflow_server(tmp_path) == "https://mlflow.example.org"
    monkeypatch.setenv("LCE_MLFLOW_URI", "https://team.example.org")
    assert mlflow_server(tmp_path) == "https://team.example.org"
    assert mlflow_environment(tmp_path)["MLFLOW_TRACKING_PASSWORD"] == SECRET


def test_the_server_of_lce_up_is_not_a_teams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "services").mkdir()
    write_json(tmp_path / "services" / "mlflow.json", {"url": "http://127.0.0.1:5123"})
    for own in ("http://127.0.0.1:5000", "http://127.0.0.1:5123"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", own)
        assert mlflow_server(tmp_path) is None
        assert mlflow_environment(tmp_path) == {}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("sqlite:///a.db", "the address of an MLflow server"),
        ("https://me:secret@mlflow.example.org", "an address without them"),
    ],
)
def test_a_wrong_address_ends_a_run_before_its_first_step(
    tmp_path: Path, address: str, expected: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from lce.cli import main; main()", "run", "smoke"],
        env={**os.environ, "LCE_HOME": str(tmp_path), "LCE_MLFLOW_URI": address},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert expected in " ".join(done.stderr.split())
    assert "secret" not in done.stderr
    assert not (tmp_path / "artifacts").exists()


def test_a_wrong_address_is_an_error_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LCE_MLFLOW_URI", "mlflow.example.org")
    with pytest.raises(SpecError, match="https://mlflow"):
        mlflow_server(Path("home"))
