"""Write a study's records as one MLflow experiment; rewrite only the runs that changed.

MLflow is a view of the store, never a source: lce recreates a deleted database with equal content.
Timestamps come from the records, so a second call changes nothing. A changed run is deleted
permanently and written again, because MLflow can neither remove a metric nor change a param. MLflow
is imported inside functions, so that `is_current` returns within milliseconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.mlflow_pages import note_pages, pages_of
from catalog.origin import Maker, add_to_note, noted, state_digest
from lce_core.errors import SpecError
from lce_core.store.artifacts import Store
from tasks.tracking.database import Destination, destination, note, runs_of
from tasks.tracking.study_content import (
    EXPORT,
    KIND,
    NOTE,
    RUN_KEY,
    RunContent,
    read_plan,
    run_contents,
)
from tasks.tracking.views import description, saved_views

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, Run

_DIGEST = "lce.content_digest"
PARENT = "mlflow.parentRunId"
LIVE = "lce.live"
"""Tag of live runs: the training run's fingerprint."""
_MAKER = Maker(
    (Path(__file__).parent, Path(__file__).parents[2] / "lce_core"), ("mlflow", "pydantic")
)
_BATCH = 900
"""Metrics per log_batch call; of the 1000 that MLflow accepts, 100 remain for params."""
_MODEL = "model"
"""Folder of an exported model among the files of its run."""


@dataclass(frozen=True)
class ProjectionReport:
    """Numbers of MLflow runs that `project` wrote, kept and removed."""

    written: int
    kept: int
    """Runs that were up to date."""
    removed: int
    """Deleted runs: outdated ones, also counted in `written`, and obsolete ones."""


def is_current(store: Store, study: str, server: str | None = None) -> bool:
    """Return True if MLflow already shows the store's current state; does not import MLflow."""
    where, pages = destination(store.home, server), pages_of(store.home, study)
    if pages is None or pages.team != server or not where.is_usable():
        return False
    return noted(note(store.home)).get(where.note_key(study)) == state_digest(store, _MAKER, study)


def unprojected(store: Store) -> list[str]:
    """Return the studies that neither the store's own MLflow nor a team's server shows."""
    shown, where = noted(note(store.home)), destination(store.home, None)
    pages = {plan["study"]: pages_of(store.home, plan["study"]) for plan in store.studies.plans()}
    return [
        name
        for name, page in pages.items()
        if where.note_key(name) not in shown and not (page and page.team)
    ]


def project(store: Store, study: str, server: str | None = None) -> ProjectionReport:
    """Update the study's MLflow experiment from the store's finished cells."""
    # Compute the digest before reading the records: if a record appears in between, the digest is
    # outdated, and the next call projects the study again.
    state, plan = state_digest(store, _MAKER, study), read_plan(store, study)
    if plan is None:
        raise SpecError(
            f"{store.home}: study {study!r}",
            "a study without a plan in this store",
            "a study that was run with this store",
            f"run `lce run {study}` first",
        )
    where = destination(store.home, server)
    with experiment_of(where, plan) as (client, experiment_id):
        existing = [run for run in runs_of(client, experiment_id) if _is_written(store, where, run)]
        contents = run_contents(store, plan)
        kept = {run.data.tags[RUN_KEY]: run for run in existing if _is_up_to_date(run, contents)}
        ids = {key: run.info.run_id for key, run in kept.items()}
        outdated = [run for run in existing if run.info.run_id not in ids.values()]
        for run in outdated:
            where.remove(client, run)
        for content in contents:  # a parent comes before its children
            parent = ids.get(content.parent or "")
            if content.key not in kept:
                ids[content.key] = _write(client, experiment_id, content, parent, where.tags())
            elif parent and kept[content.key].data.tags.get(PARENT) != parent:
                client.set_tag(ids[content.key], PARENT, parent)
        note_pages(store.home, study, experiment_id, ids, server)
        add_to_note(note(store.home), {where.note_key(study): state})
    return ProjectionReport(len(contents) - len(kept), len(kept), len(outdated))


@contextlib.contextmanager
def experiment_of(
    where: Destination, plan: Mapping[str, Any]
) -> Iterator[tuple[MlflowClient, str]]:
    """Yield an MLflow client with exclusive write access, and the id of the study's experiment.

    Create or restore the experiment and set its tags first.
    """
    with where.opened() as client:
        found = client.get_experiment_by_name(plan["study"])
        if found is None:
            experiment_id = where.create_experiment(client, plan["study"])
        else:
            experiment_id = found.experiment_id
            if found.lifecycle_stage == "deleted":
                client.restore_experiment(experiment_id)
        about = {NOTE: description(plan, experiment_id), "lce.study": plan["study"]}
        for key, value in {**about, **saved_views(plan)}.items():
            if found is None or found.tags.get(key) != value:
                client.set_experiment_tag(experiment_id, key, value)
        yield client, experiment_id


def _is_up_to_date(run: Run, contents: list[RunContent]) -> bool:
    known = {content.key: content.digest for content in contents}
    tags, info = run.data.tags, run.info
    is_complete = info.status == "FINISHED" and info.lifecycle_stage == "active"
    return is_complete and tags.get(_DIGEST) == known.get(tags.get(RUN_KEY, ""), "none")


def _is_written(store: Store, where: Destination, run: Run) -> bool:
    """Return True if `project` writes and removes this run.

    Others are runs of other stores, exported models, and live runs without an artifact.
    """
    if not where.owns(run) or run.data.tags.get(KIND) == EXPORT:
        return False
    trained = run.data.tags.get(LIVE)
    return trained is None or store.find(trained) is not None


def _write(
    client: MlflowClient,
    experiment_id: str,
    content: RunContent,
    parent: str | None,
    of_store: Mapping[str, str],
) -> str:
    """Write one run and return its id; FINISHED, set last, shows that it is complete."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param
    from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

    tags = {**content.tags, **of_store, _DIGEST: content.digest}
    tags |= {PARENT: parent} if parent else {}
    run_id: str = client.create_run(experiment_id, content.start, tags, content.name).info.run_id
    metrics = [Metric(m.key, m.value, m.timestamp, m.step) for m in content.metrics]
    params = [Param(key, value) for key, value in content.params.items()]
    log_metrics(client, run_id, metrics, params)
    inputs = [
        DatasetInput(
            Dataset(one.name, one.digest, "lce", one.source),
            [InputTag(MLFLOW_DATASET_CONTEXT, one.context)],
        )
        for one in content.datasets
    ]
    if inputs:
        client.log_inputs(run_id, inputs)
    for name, text in content.files.items():
        client.log_text(run_id, text, name)
    client.set_terminated(run_id, "FINISHED", content.end)
    return run_id


def log_metrics(
    client: MlflowClient, run_id: str, metrics: Sequence[Metric], params: Sequence[Param] = ()
) -> None:
    for start in range(0, max(1, len(metrics)), _BATCH):
        client.log_batch(run_id, metrics[start : start + _BATCH], () if start else params)


def register(
    where: Destination, plan: Mapping[str, Any], folder: Path, name: str, about: Mapping[str, str]
) -> str:
    """Copy a model folder to MLflow and add it to the registry as the next version of `name`.

    `about` are tags, such as variant and seed. Returns "models:/NAME/VERSION".

    The folder is stored unchanged: MLflow 3.17 cannot write its own format for transformers models
    with transformers 5, because the format reads a pipeline class that is now a text.
    """
    from mlflow.exceptions import MlflowException

    with experiment_of(where, plan) as (client, experiment_id):
        tags = {**where.tags(), KIND: EXPORT, **about}
        run_id = client.create_run(experiment_id, None, tags, f"export {name}").info.run_id
        client.log_artifacts(run_id, str(folder), _MODEL)
        client.set_terminated(run_id, "FINISHED")
        with contextlib.suppress(MlflowException):  # it exists
            client.create_registered_model(name)
        version = client.create_model_version(
            name, f"runs:/{run_id}/{_MODEL}", run_id, tags=dict(about)
        )
        return f"models:/{name}/{version.version}"
