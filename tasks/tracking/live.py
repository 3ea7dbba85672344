"""Show training runs in MLflow while they train, before the study's own runs are written.

Trainers on all hosts write loss logs to the store. A separate process adds their new entries to one
live run per training run. When the training run has become an artifact, `tracking.project` removes
its live run. If training failed, the live run stays with status FAILED, so that a user can inspect
its curve.

The process exits when its standard input closes. It loads MLflow only if there is something to
show. Its errors never stop training: they go to the log, and the next poll tries again.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lce_core.store.artifacts import Store
from lce_core.store.identity import ID_DIGITS, fingerprint
from lce_core.store.lease import Lease, is_held
from lce_core.store.odd_files import make_folder
from lce_core.training.loss_log import LOG, read_entries
from tasks.companion import companion, end_of_input
from tasks.tracking.database import database, destination, runs_of
from tasks.tracking.projection import LIVE, experiment_of, log_metrics
from tasks.tracking.study_content import NOTE, RUN_KEY, curves, read_plan

if TYPE_CHECKING:
    from mlflow import MlflowClient

POLL_SECONDS = 5.0
LEAST_SECONDS = 15.0
"""Training runs that end this soon after their first log entry are not shown."""


@dataclass
class _Live:
    since: float
    """Monotonic time of the first log entry."""
    run_id: str | None = None
    shown: list[dict[str, Any]] = field(default_factory=list)
    """Entries that are in MLflow."""
    finished: bool = False
    """True once the training run has become an artifact and its MLflow run is FINISHED."""


class LiveRuns:
    """Writes a study's training runs to MLflow while they train, as live runs."""

    def __init__(
        self,
        store: Store,
        plan: Mapping[str, Any],
        least_seconds: float = LEAST_SECONDS,
        server: str | None = None,
    ) -> None:
        self._store, self._plan, self._least = store, plan, least_seconds
        self._where = destination(store.home, server)
        self._trainings = {one["fingerprint"]: one for one in plan["trainings"]}
        self._live: dict[str, _Live] = {}

    def acquire(self) -> Lease | None:
        """Return the right to show the study's training runs; None if another process has it."""
        key = self._where.note_key(self._plan["study"])
        name = f"live-{fingerprint(key)[:ID_DIGITS]}"
        return Lease.acquire(make_folder(database(self._store.home).parent), name)

    def update(self) -> int:
        """Add the new log entries of all training runs to MLflow; return how many were added."""
        # Find the ended training runs before reading logs: their logs are then complete.
        ended = [name for name in self._open() if self._store.find(name)]
        changed: dict[str, list[dict[str, Any]]] = {}
        now = time.monotonic()
        for name, training in self._trainings.items():
            entries = self._entries(training)
            live = self._live.setdefault(name, _Live(now)) if entries else self._live.get(name)
            if live and now - live.since >= self._least and entries != live.shown:
                changed[name] = entries
        if not changed and not ended:
            return 0
        with experiment_of(self._where, self._plan) as (client, experiment_id):
            added = [self._show(client, experiment_id, *each) for each in changed.items()]
            for name, run_id in self._open().items():
                if name in ended:
                    self._live[name].finished = True
                    client.set_terminated(run_id, "FINISHED")
        return sum(added)

    def close(self) -> None:
        """Add the last entries; set the status of training runs that have failed to FAILED.

        Another host may go on with a training run without an artifact.
        """
        self.update()
        leases = self._store.home / "leases"
        left = {
            name: run_id
            for name, run_id in self._open().items()
            if not is_held(leases, name[:ID_DIGITS])
        }
        if not left:
            return
        with experiment_of(self._where, self._plan) as (client, _):
            for run_id in left.values():
                client.set_terminated(run_id, "FAILED")

    def _open(self) -> dict[str, str]:
        return {
            name: live.run_id
            for name, live in self._live.items()
            if live.run_id and not live.finished
        }

    def _entries(self, training: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the log in the folder of the resume points or, after training, in the artifact."""
        name = training["fingerprint"]
        live = self._live.get(name)
        if live and live.finished:
            return live.shown
        entries = read_entries(self._store.home / "progress" / training["checkpoint"] / LOG)
        if entries or live is None:
            return entries
        if live.run_id is None:  # training ended before it was shown
            del self._live[name]
            return []
        folder = self._store.find(name)
        return live.shown if folder is None else read_entries(folder / LOG)

    def _show(
        self,
        client: MlflowClient,
        experiment_id: str,
        name: str,
        entries: list[dict[str, Any]],
    ) -> int:
        """Add a training run's new entries to its MLflow run; return how many were added.

        MLflow cannot delete logged values. If its entries are no longer in the log, for example
        after a resume, the MLflow run is removed and created again.
        """
        from mlflow.entities import Metric

        live, training = self._live[name], self._trainings[name]
        if live.run_id is None or entries[: len(live.shown)] != live.shown:
            for run in runs_of(client, experiment_id):
                if run.data.tags.get(LIVE) == name and self._where.owns(run):
                    self._where.remove(client, run)
            live.run_id, live.shown = self._create(client, experiment_id, training), []
        new = entries[len(live.shown) :]
        when = round(time.time() * 1000)
        metrics = [
            Metric(key, value, when, entry["step"])
            for entry in new
            for key, value in curves(training["kind"], entry).items()
        ]
        run_id, live.run_id = live.run_id, None  # if an error follows, the run is created again
        log_metrics(client, run_id, metrics)
        live.run_id, live.shown = run_id, entries
        return len(new)

    def _create(self, client: MlflowClient, experiment_id: str, training: Mapping[str, Any]) -> str:
        name = training["folder"].rpartition("/")[2]
        tags = {
            **self._where.tags(),
            LIVE: training["fingerprint"],
            RUN_KEY: f"{self._plan['study']}/training/{name}",
            "lce.study": self._plan["study"],
            NOTE: (
                f"Training in progress, or failed: `{name}`. When training is done, this run is"
                " removed; the study's own runs then show the curve."
            ),
        }
        created = client.create_run(experiment_id, None, tags, f"training {name}")
        run_id: str = created.info.run_id
        for key in ("base_model", "method", "seed"):
            if training[key] is not None:
                client.log_param(run_id, key, training[key])
        return run_id


@contextlib.contextmanager
def shown_live(
    home: Path, study: str, server: str | None = None, least_seconds: float = LEAST_SECONDS
) -> Iterator[None]:
    """Show the study's training runs in MLflow in a separate process; its plan must be saved."""
    log = home / "logs" / "live-tracking.log"
    arguments = (str(home), study, str(least_seconds), *([server] if server else []))
    with companion("tasks.tracking.live", *arguments, log=log):
        yield


def main(home: Path, study: str, least_seconds: float, server: str | None = None) -> int:
    """Show training runs until standard input closes; one host shows those of all hosts."""
    store = Store(home)
    plan = read_plan(store, study)
    if plan is None:  # the store or the plan was removed
        return 0
    ended = end_of_input()
    live = LiveRuns(store, plan, least_seconds, server)
    with contextlib.ExitStack() as stack:
        lease: Lease | None = None
        while not ended.wait(min(POLL_SECONDS, least_seconds)):
            try:
                if lease is None and (lease := live.acquire()):
                    stack.enter_context(lease)
                if lease:
                    live.update()
            except Exception:  # noqa: BLE001 - the server may answer again
                traceback.print_exc()
        if lease:
            live.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), *sys.argv[4:]))
