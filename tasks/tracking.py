"""The MLflow projection: a study's records as one experiment, rewritten only where they changed.

MLflow is a view of the store, never a source: its database may be deleted and comes back equal.
Everything is written by one process at a time under a file lock, with timestamps taken from the
records, so that projecting twice changes nothing. A changed run is deleted for good and rewritten,
because MLflow can neither take back a metric nor change a param. MLflow itself is imported inside
functions only: `is_current` answers for a study without changes in milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from catalog.origin import Maker, add_to_note, noted, state_digest
from lce_core.errors import SpecError
from lce_core.store.artifacts import Store
from lce_core.store.identity import fingerprint
from tasks.run_content import RunContent, read_plan, run_contents

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_DIGEST = "lce.content_digest"
_RUN_KEY = "lce.run_key"
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
_MAKER = Maker(
    (Path(__file__).parent, Path(__file__).parents[1] / "lce_core"), ("mlflow", "pydantic")
)
_BATCH = 900
"""Entities in one log_batch call; MLflow takes 1000."""


@dataclass(frozen=True)
class ProjectionReport:
    """What a projection changed."""

    study: str
    experiment_id: str
    written: int
    """Runs logged anew."""
    kept: int
    """Runs that were there and equal."""
    removed: int
    """Runs deleted for good: outdated ones and those whose cells are gone."""
    seconds: float


def database(home: Path) -> Path:
    """MLflow's database of a store."""
    return home.absolute() / "mlflow" / "mlflow.db"


def artifact_root(home: Path) -> Path:
    """Folder in which MLflow keeps the files of its runs."""
    return home.absolute() / "mlflow" / "artifacts"


def tracking_uri(home: Path) -> str:
    """What `mlflow server --backend-store-uri` and MLFLOW_TRACKING_URI take."""
    return f"sqlite:///{database(home)}"


def is_current(store: Store, study: str) -> bool:
    """Whether MLflow shows the study as the store has it; imports no MLflow."""
    if not database(store.home).exists():
        return False
    return noted(_note(store.home)).get(study) == state_digest(store, _MAKER, study)


def initialise(home: Path) -> None:
    """Creates the database if it is not there; several processes may call it at once.

    It is migrated aside and renamed into place: a process killed on the way leaves nothing behind
    that looks like a database.
    """
    with _exclusive(home):
        _create_database(home)


def project(store: Store, study: str) -> ProjectionReport:
    """Brings the study's experiment in line with the store's finished cells.

    Raises:
      SpecError: the study was never planned in this store.
    """
    clock = time.monotonic()
    with _exclusive(store.home), _own_environment():
        # Before the records are read: one that is finished meanwhile makes the next call project.
        state, plan = state_digest(store, _MAKER, study), read_plan(store, study)
        if plan is None:
            raise SpecError(
                f"{store.home}: study {study!r}",
                "no plan",
                "a study that was planned",
                f"run `lce run {study}` first",
            )
        _create_database(store.home)
        client = _client(store.home)
        experiment_id = _experiment(client, store.home, plan)
        there = _runs(client, experiment_id)
        contents = run_contents(store, plan)
        current = {run.info.run_id for run in there if _is_one_of(run, contents)}
        kept_keys = {run.data.tags[_RUN_KEY] for run in there if run.info.run_id in current}
        outdated = [run for run in there if run.info.run_id not in current]
        for run in outdated:
            _remove(client, store.home, run)
        missing = [content for content in contents if content.key not in kept_keys]
        for content in missing:
            _write(client, experiment_id, content)
        add_to_note(_note(store.home), {study: state})
    seconds = round(time.monotonic() - clock, 3)
    return ProjectionReport(
        study, experiment_id, len(missing), len(current), len(outdated), seconds
    )


def logical_digest(home: Path) -> str:
    """sha256 over experiments, runs, params, metrics and tags, without ids MLflow made up."""
    from mlflow.entities import ViewType

    with _exclusive(home), _own_environment():
        client, shown = _client(home), []
        for experiment in client.search_experiments(view_type=ViewType.ALL):
            runs = _runs(client, experiment.experiment_id)
            shown.append(
                {
                    "name": experiment.name,
                    "stage": experiment.lifecycle_stage,
                    "tags": _ours(experiment.tags),
                    "runs": sorted((_logical(client, run) for run in runs), key=json.dumps),
                }
            )
    return fingerprint(sorted(shown, key=lambda one: str(one["name"])), "mlflow")


def _logical(client: MlflowClient, run: Run) -> dict[str, Any]:
    points = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
    return {
        "name": run.info.run_name,
        "status": run.info.status,
        "stage": run.info.lifecycle_stage,
        "time": [run.info.start_time, run.info.end_time],
        "params": dict(run.data.params),
        "tags": _ours(run.data.tags),
        "metrics": {
            k: sorted([p.step, p.timestamp, p.value] for p in v) for k, v in points.items()
        },
    }


def _ours(tags: Mapping[str, str]) -> dict[str, str]:
    # MLflow adds tags of its own, some of them random or timed (mlflow.experiment..., mlflow.user).
    names = ("mlflow.note.content", "mlflow.runName")
    return {key: tags[key] for key in tags if key.startswith("lce.") or key in names}


def _is_one_of(run: Run, contents: list[RunContent]) -> bool:
    known = {content.key: content.digest for content in contents}
    tags, info = run.data.tags, run.info
    whole = info.status == "FINISHED" and info.lifecycle_stage == "active"
    return whole and tags.get(_DIGEST) == known.get(tags.get(_RUN_KEY, ""), "none")


def _runs(client: MlflowClient, experiment_id: str) -> list[Run]:
    """All runs of an experiment, deleted ones included."""
    from mlflow.entities import ViewType

    found: list[Run] = []
    token = None
    while True:
        page = client.search_runs([experiment_id], "", ViewType.ALL, 1000, page_token=token)
        found.extend(page)
        token = page.token
        if not token:
            return found


def _experiment(client: MlflowClient, home: Path, plan: Mapping[str, Any]) -> str:
    """Id of the study's experiment, described; made, or taken out of the bin, where needed."""
    found = client.get_experiment_by_name(plan["study"])
    if found is None:
        folder = artifact_root(home) / plan["study"]
        experiment_id: str = client.create_experiment(plan["study"], folder.as_uri())
    else:
        experiment_id = found.experiment_id
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(experiment_id)
    tags = {"mlflow.note.content": _description(plan), "lce.study": plan["study"]}
    for key, value in tags.items():
        if found is None or found.tags.get(key) != value:
            client.set_experiment_tag(experiment_id, key, value)
    return experiment_id


def _description(plan: Mapping[str, Any]) -> str:
    return (
        f"**{plan['study']}**. {plan['hypothesis'].strip()}\n\n"
        "One run is one row of the study at one seed. A metric is `benchmark/task` and its step is"
        " the evaluated length in tokens: choose *Step* as the x-axis of the chart view and group"
        f" by `row`. The target context is {plan['target_context']} tokens; `summary/` holds each"
        " benchmark's mean over its tasks there. Written from the store by `lce`; edits are lost."
    )


def _write(client: MlflowClient, experiment_id: str, content: RunContent) -> None:
    """Logs one run; it carries its digest and counts as whole only once it is finished."""
    from mlflow.entities import Metric, Param

    tags = {**content.tags, _DIGEST: content.digest}
    run = client.create_run(experiment_id, content.start, tags, content.name)
    run_id = run.info.run_id
    metrics = [Metric(m.key, m.value, m.timestamp, m.step) for m in content.metrics]
    params = [Param(key, value) for key, value in content.params.items()]
    client.log_batch(run_id, metrics[:_BATCH], params)
    for start in range(_BATCH, len(metrics), _BATCH):
        client.log_batch(run_id, metrics[start : start + _BATCH])
    for name, text in content.files.items():
        client.log_text(run_id, text, name)
    client.set_terminated(run_id, "FINISHED", content.end)


def _remove(client: MlflowClient, home: Path, run: Run) -> None:
    """Deletes a run and its files for good, as `mlflow gc` does: a deleted run is only hidden."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(tracking_uri(home), artifact_root(home).as_uri())
    if run.info.lifecycle_stage == "active":
        client.delete_run(run.info.run_id)
    store._hard_delete_run(run.info.run_id)
    for folder in artifact_root(home).glob(f"*/{run.info.run_id}"):
        shutil.rmtree(folder, ignore_errors=True)


def _client(home: Path) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri(home))


def _create_database(home: Path) -> None:
    final = database(home)
    if final.exists():
        return
    aside = final.with_name(".new.db")
    for leftover in final.parent.glob(".new.db*"):
        leftover.unlink()
    shutil.rmtree(artifact_root(home), ignore_errors=True)  # files of runs that are gone
    _note(home).unlink(missing_ok=True)
    with _own_environment():
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        store = SqlAlchemyStore(f"sqlite:///{aside}", artifact_root(home).as_uri())
        store.engine.dispose()
    aside.replace(final)


@contextlib.contextmanager
def _exclusive(home: Path) -> Iterator[None]:
    folder = database(home).parent
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        yield


@contextlib.contextmanager
def _own_environment() -> Iterator[None]:
    """Hides the user's MLFLOW_* variables, which choose servers, runs and pools, from MLflow."""
    hidden = {key: os.environ.pop(key) for key in list(os.environ) if key.startswith("MLFLOW_")}
    os.environ.update(_QUIET)
    try:
        yield
    finally:
        os.environ.update(hidden)


def _note(home: Path) -> Path:
    return database(home).with_name("projected.json")
