"""MLflow as a team has it: a real server, over HTTP, that wants a password."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from catalog.mlflow_pages import pages_of
from flows.servers.doctor import _mlflow_server
from flows.servers.services import study_pages
from flows.settings import mlflow_environment, mlflow_server
from lce.cli import app
from lce_core.errors import ServiceError, SpecError
from lce_core.store.artifacts import Store
from lce_core.store.records import write_json
from tasks import projections
from tasks.tracking import TeamServer, database, is_current, project
from tasks.tracking.database import STORE
from tasks.tracking.projection import register
from tasks.tracking.study_content import read_plan
from tests.support.guarded_mlflow import guarded_mlflow
from tests.support.studies import move_mlflow
from tests.support.tracked_studies import cell, compute, plan_study

pytestmark = pytest.mark.slow
SECRET = "of-the-team"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def team(tmp_path_factory, migrated) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("team")
    shutil.copytree(migrated / "mlflow", folder / "mlflow")
    move_mlflow(migrated, folder)
    # New experiments keep their files behind the server, as those of a shared server do.
    files = {"_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/"}
    with guarded_mlflow(folder, SECRET, files) as address:
        yield address


@pytest.fixture(autouse=True)
def _credentials(monkeypatch) -> None:
    set_credentials(monkeypatch)


def set_credentials(patch: pytest.MonkeyPatch) -> None:
    for name in ("LCE_MLFLOW_URI", "MLFLOW_TRACKING_URI"):
        patch.delenv(name, raising=False)
    patch.setenv("MLFLOW_TRACKING_USERNAME", "lce")
    patch.setenv("MLFLOW_TRACKING_PASSWORD", SECRET)


def store_at(folder: Path, study: str) -> Store:
    store = Store(folder)
    store.prepare()
    plan_study(store, study=study)
    return store


def runs(team: str, study: str) -> dict[tuple[str, str], Any]:
    from mlflow import MlflowClient

    client = MlflowClient(team)
    experiment = client.get_experiment_by_name(study)
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id])
    return {(run.data.tags.get("lce.run_key", ""), run.data.tags[STORE]): run for run in found}


@pytest.fixture(scope="module")
def shown(team, tmp_path_factory) -> Store:
    with pytest.MonkeyPatch.context() as patch:
        set_credentials(patch)
        store = store_at(tmp_path_factory.mktemp("shown"), "one")
        assert not is_current(store, "one", team)
        report = project(store, "one", team)
    assert (report.written, report.kept) == (6, 0)
    return store


def test_a_study_is_on_the_teams_server_and_not_in_the_store(team, shown):
    assert is_current(shown, "one", team)
    assert not is_current(shown, "one")
    assert not database(shown.home).exists()
    rows = ("none", "yarn-tuned")
    assert {key for key, _ in runs(team, "one")} == {
        f"one/toy_llama/{row}{seed}" for row in rows for seed in ("", "/seed-0", "/seed-1")
    }
    again = project(shown, "one", team)
    assert (again.written, again.kept, again.removed) == (0, 6, 0)
    pages = pages_of(shown.home, "one")
    assert pages is not None
    assert pages.methods.startswith(f"{team}/#/experiments/")
    assert study_pages(shown.home) == {"one": pages.methods}
    plan_study(shown, study="own")
    projections.record(shown.home, "own")
    assert is_current(shown, "own")
    assert not is_current(shown, "one")
    assert study_pages(shown.home)["one"] == pages.methods


def test_runs_on_the_server_have_their_files_and_the_digests_of_their_data(team, shown, tmp_path):
    from mlflow import MlflowClient

    found = runs(team, "one")
    (run,) = [run for (key, _), run in found.items() if key.endswith("none/seed-0")]
    assert run.info.artifact_uri.startswith("mlflow-artifacts:")
    path = MlflowClient(team).download_artifacts(run.info.run_id, "cells.json", str(tmp_path))
    assert len(json.loads(Path(path).read_text(encoding="utf-8"))) == 2
    for run in found.values():
        (one,) = run.inputs.dataset_inputs
        assert one.dataset.name == "local_text"
        assert one.dataset.digest == "0123456789abcdef0123456789abcdef0123"
        assert json.loads(one.dataset.source) == {"name": "local_text", "version": 1}
        assert [(tag.key, tag.value) for tag in one.tags] == [("mlflow.data.context", "evaluation")]


def test_two_stores_change_only_their_own_runs(team, shown, tmp_path):
    before = {run.info.run_id for run in runs(team, "one").values()}
    second = store_at(tmp_path, "one")
    project(second, "one", team)
    others = {run.info.run_id for run in runs(team, "one").values()} - before
    assert (len(before), len(others)) == (6, 6)
    second.ensure(cell("yarn", 3, "passkey", 128, None), compute, {})
    plan_study(second, study="one", seeds=(0, 1, 2))
    assert project(second, "one", team).removed == 2  # the means over seeds
    left = {run.info.run_id for run in runs(team, "one").values()}
    assert len(left) == 14
    assert before < left
    plan_study(second, study="one", seeds=(), rows=())
    assert project(second, "one", team).removed == 8
    assert {run.info.run_id for run in runs(team, "one").values()} == before


def test_an_exported_model_is_registered_and_stays(team, tmp_path, monkeypatch):
    from mlflow import MlflowClient
    from mlflow.artifacts import download_artifacts

    store = store_at(tmp_path / "home", "models")
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
    monkeypatch.setenv("MLFLOW_TRACKING_URI", team)
    copy = download_artifacts("models:/long/1", dst_path=str(tmp_path / "copy"))
    assert (Path(copy) / "config.json").read_text(encoding="utf-8") == "{}"


@pytest.mark.parametrize("down", [True, False])
def test_a_server_that_does_not_answer_or_refuses_stops_no_run(
    team, tmp_path, monkeypatch, capsys, down
):
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
    with pytest.raises(ServiceError):
        _mlflow_server(tmp_path)


def test_the_server_is_named_by_either_variable_and_is_not_that_of_lce_up(tmp_path, monkeypatch):
    assert mlflow_server(tmp_path) is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///a.db")
    assert mlflow_server(tmp_path) is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org/")
    assert mlflow_server(tmp_path) == "https://mlflow.example.org"
    monkeypatch.setenv("LCE_MLFLOW_URI", "https://team.example.org")
    assert mlflow_server(tmp_path) == "https://team.example.org"
    assert mlflow_environment(tmp_path)["MLFLOW_TRACKING_PASSWORD"] == SECRET

    (tmp_path / "services").mkdir()
    write_json(tmp_path / "services" / "mlflow.json", {"url": "http://127.0.0.1:5123"})
    monkeypatch.delenv("LCE_MLFLOW_URI")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5123")
    assert mlflow_server(tmp_path) is None
    assert mlflow_environment(tmp_path) == {}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("sqlite:///a.db", "the address of an MLflow server"),
        ("mlflow.example.org", "https://mlflow"),
        ("https://me:secret@mlflow.example.org", "an address without them"),
    ],
)
def test_a_wrong_address_ends_a_run_before_its_first_step(tmp_path, address, expected, monkeypatch):
    monkeypatch.setenv("LCE_HOME", str(tmp_path))
    monkeypatch.setenv("LCE_MLFLOW_URI", address)
    error = CliRunner().invoke(app, ["run", "smoke"]).exception
    assert isinstance(error, SpecError)
    assert expected in str(error)
    assert "secret" not in str(error)
    assert not (tmp_path / "artifacts").exists()
