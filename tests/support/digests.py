"""Digests of all that a store's catalog and its MLflow show, to compare two builds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.queries import open_catalog
from lce_core.store.identity import fingerprint
from tasks.tracking.database import opened, runs_of
from tasks.tracking.projection import LIVE, PARENT
from tasks.tracking.study_content import NOTE, RUN_KEY
from tasks.tracking.views import VIEW_TAGS

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


def catalog_digest(path: Path) -> str:
    """Return the sha256 of all rows in schema `store`; equal for two builds from one store."""
    digest = hashlib.sha256()
    with open_catalog(path) as connection:
        tables = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'store' ORDER BY ALL"
        ).fetchall()
        for (name,) in tables:
            # Hash each row first: the result ignores the order of rows, and memory stays bounded.
            rows = connection.execute(
                f"SELECT sha256(string_agg(row_hash, '' ORDER BY row_hash)) FROM "
                f"(SELECT sha256(to_json(t)::VARCHAR) AS row_hash FROM store.{name} t)"
            ).fetchone()
            digest.update(f"{name}={rows[0] if rows else None}\n".encode())
    return digest.hexdigest()


def mlflow_digest(home: Path) -> str:
    """Return a sha256 of all experiments and runs in MLflow, without MLflow's own ids.

    Live runs are left out, because a rebuild does not restore them.
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
                            f"#/experiments/{experiment.experiment_id}", "#/experiments/?"
                        )
                        for key, text in _own_tags(experiment.tags).items()
                    },
                    "runs": sorted((_logical(client, run, keys) for run in runs), key=json.dumps),
                }
            )
    return fingerprint(sorted(shown, key=lambda one: str(one["name"])), "mlflow")


def _logical(client: MlflowClient, run: Run, keys: Mapping[str, str | None]) -> dict[str, Any]:
    points = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
    return {
        "name": run.info.run_name,
        "parent": keys.get(run.data.tags.get(PARENT, "")),
        "status": run.info.status,
        "stage": run.info.lifecycle_stage,
        "time": [run.info.start_time, run.info.end_time],
        "params": dict(run.data.params),
        "tags": _own_tags(run.data.tags),
        "metrics": {
            k: sorted([p.step, p.timestamp, p.value] for p in v) for k, v in points.items()
        },
    }


def _own_tags(tags: Mapping[str, str]) -> dict[str, str]:
    # MLflow adds tags with random values, times and user names; omit them.
    names = (NOTE, "mlflow.runName", *VIEW_TAGS)
    return {key: tags[key] for key in tags if key.startswith("lce.") or key in names}
