"""The MLflow projection: a study's records as one experiment, rewritten only where they changed.

MLflow is a view of the store, never a source: its database may be deleted and comes back equal, and
does so in a store that was moved.
Everything is written by one process at a time under a file lock, with timestamps taken from the
records, so that projecting twice changes nothing. A changed run is deleted for good and rewritten,
because MLflow can neither take back a metric nor change a param. MLflow itself is imported inside
functions only: `is_current` answers for a study without changes in milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.mlflow_pages import experiment_path, note_pages, pages_of
from catalog.notes import add_to_note, noted
from catalog.origin import Maker, state_digest
from lce_core.errors import SpecError
from lce_core.store.artifacts import Store
from lce_core.store.identity import fingerprint
from tasks.tracking.content import NOTE, RUN_KEY, RunContent
from tasks.tracking.database import artifact_root, is_here, note, opened, remove, runs_of
from tasks.tracking.study_content import read_plan, run_contents
from tasks.tracking.views import VIEW_TAGS, description, saved_views

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

_DIGEST = "lce.content_digest"
_PARENT = "mlflow.parentRunId"
LIVE = "lce.live"
"""Tag of a run that shows a training run in progress: the training run's fingerprint."""
_MAKER = Maker(
    (Path(__file__).parent, Path(__file__).parents[2] / "lce_core"), ("mlflow", "pydantic")
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


def is_current(store: Store, study: str) -> bool:
    """Whether MLflow shows the study as the store has it; imports no MLflow."""
    if not is_here(store.home) or pages_of(store.home, study) is None:
        return False
    return noted(note(store.home)).get(study) == state_digest(store, _MAKER, study)


def unprojected(store: Store) -> list[str]:
    """Return the studies of the store that MLflow never showed, by name."""
    shown = noted(note(store.home))
    return [plan["study"] for plan in store.studies.plans() if plan["study"] not in shown]


def project(store: Store, study: str) -> ProjectionReport:
    """Brings the study's experiment in line with the store's finished cells.

    Raises:
      SpecError: the study was never planned in this store.
    """
    clock = time.monotonic()
    # Before the records are read: one that is finished meanwhile makes the next call project.
    state, plan = state_digest(store, _MAKER, study), read_plan(store, study)
    if plan is None:
        raise SpecError(
            f"{store.home}: study {study!r}",
            "no plan",
            "a study that was planned",
            f"run `lce run {study}` first",
        )
    with experiment_of(store.home, plan) as (client, experiment_id):
        there = [run for run in runs_of(client, experiment_id) if not _still_lives(store, run)]
        contents = run_contents(store, plan)
        kept = {run.data.tags[RUN_KEY]: run for run in there if _is_one_of(run, contents)}
        ids = {key: run.info.run_id for key, run in kept.items()}
        outdated = [run for run in there if run.info.run_id not in ids.values()]
        for run in outdated:
            remove(client, store.home, run)
        for content in contents:  # a parent comes before its children
            parent = ids.get(content.parent or "")
            if content.key not in kept:
                ids[content.key] = _write(client, experiment_id, content, parent)
            elif parent and kept[content.key].data.tags.get(_PARENT) != parent:
                client.set_tag(ids[content.key], _PARENT, parent)
        note_pages(store.home, study, experiment_id, ids)
        add_to_note(note(store.home), {study: state})
    seconds = round(time.monotonic() - clock, 3)
    written = len(contents) - len(kept)
    return ProjectionReport(study, experiment_id, written, len(kept), len(outdated), seconds)


@contextlib.contextmanager
def experiment_of(home: Path, plan: Mapping[str, Any]) -> Iterator[tuple[MlflowClient, str]]:
    """A client for a study's experiment and the experiment's id; nobody else writes meanwhile."""
    with opened(home) as client:
        yield client, _experiment(client, home, plan)


def logical_digest(home: Path) -> str:
    """sha256 over experiments, runs, params, metrics and tags, without ids MLflow made up.

    Runs that show training in progress are left out: they follow from no record.
    """
    from mlflow.entities import ViewType

    with opened(home) as client:
        shown = []
        for experiment in client.search_experiments(view_type=ViewType.ALL):
            runs = runs_of(client, experiment.experiment_id)
            runs = [run for run in runs if LIVE not in run.data.tags]
            keys = {run.info.run_id: run.data.tags.get(RUN_KEY) for run in runs}
            shown.append(
                {
                    "name": experiment.name,
                    "stage": experiment.lifecycle_stage,
                    "tags": {
                        key: text.replace(
                            experiment_path(experiment.experiment_id), experiment_path("?")
                        )
                        for key, text in _ours(experiment.tags).items()
                    },
                    "runs": sorted((_logical(client, run, keys) for run in runs), key=json.dumps),
                }
            )
    return fingerprint(sorted(shown, key=lambda one: str(one["name"])), "mlflow")


def _logical(client: MlflowClient, run: Run, keys: Mapping[str, str | None]) -> dict[str, Any]:
    points = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
    return {
        "name": run.info.run_name,
        "parent": keys.get(run.data.tags.get(_PARENT, "")),
        "status": run.info.status,
        "stage": run.info.lifecycle_stage,
        "time": [run.info.start_time, run.info.end_time],
        "params": dict(run.data.params),
        "tags": _ours(run.data.tags),
        "metrics": {
            k: sorted([p.step, p.timestamp, p.value] for p in v) for k, v in points.items()
        },
    }


def _without_its_id(experiment: Experiment) -> dict[str, str]:
    here = experiment_path(experiment.experiment_id)
    return {key: text.replace(here, "") for key, text in _ours(experiment.tags).items()}


def _ours(tags: Mapping[str, str]) -> dict[str, str]:
    # MLflow adds tags of its own, some of them random or timed (mlflow.experiment..., mlflow.user).
    names = (NOTE, "mlflow.runName", *VIEW_TAGS)
    return {key: tags[key] for key in tags if key.startswith("lce.") or key in names}


def _is_one_of(run: Run, contents: list[RunContent]) -> bool:
    known = {content.key: content.digest for content in contents}
    tags, info = run.data.tags, run.info
    whole = info.status == "FINISHED" and info.lifecycle_stage == "active"
    return whole and tags.get(_DIGEST) == known.get(tags.get(RUN_KEY, ""), "none")


def _still_lives(store: Store, run: Run) -> bool:
    """Whether it shows a training run that has left no artifact yet: one in progress, or failed."""
    trained = run.data.tags.get(LIVE)
    return trained is not None and store.find(trained) is None


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
    about = {NOTE: description(plan, experiment_id), "lce.study": plan["study"]}
    tags = {**about, **saved_views(plan)}
    for key, value in tags.items():
        if found is None or found.tags.get(key) != value:
            client.set_experiment_tag(experiment_id, key, value)
    return experiment_id


def _write(
    client: MlflowClient, experiment_id: str, content: RunContent, parent: str | None
) -> str:
    """Logs one run, whose id it returns; it counts as whole only once it is finished."""
    from mlflow.entities import Metric, Param

    tags = {**content.tags, _DIGEST: content.digest, **({_PARENT: parent} if parent else {})}
    run_id: str = client.create_run(experiment_id, content.start, tags, content.name).info.run_id
    metrics = [Metric(m.key, m.value, m.timestamp, m.step) for m in content.metrics]
    params = [Param(key, value) for key, value in content.params.items()]
    client.log_batch(run_id, metrics[:_BATCH], params)
    for start in range(_BATCH, len(metrics), _BATCH):
        client.log_batch(run_id, metrics[start : start + _BATCH])
    for name, text in content.files.items():
        client.log_text(run_id, text, name)
    client.set_terminated(run_id, "FINISHED", content.end)
    return run_id
