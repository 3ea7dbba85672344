"""The MLflow that shows a store: the store's own database, or the server of a team.

On a team's server, lce uses the user's MLflow credentials (MLFLOW_TRACKING_USERNAME, ..._PASSWORD,
..._TOKEN). Several stores may write there; each changes only the runs with its id.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lce_core.errors import ServiceError
from tasks.tracking.database import (
    QUIET,
    REJECTED,
    artifact_root,
    exclusive,
    has_usable_database,
    opened,
    tracking_uri,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

STORE = "lce.store"
"""Tag on a team's server: id of the store that wrote the run."""
_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "30", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
"""MLflow's own limits, 120 s and 7 retries, would delay the end of a run by many minutes. The
user's variables take precedence."""


@dataclass(frozen=True)
class OwnDatabase:
    """The MLflow database in the store's folder."""

    home: Path
    server: None = None
    """Unknown before `lce up` starts one."""

    def is_usable(self) -> bool:
        return has_usable_database(self.home)

    def opened(self) -> AbstractContextManager[MlflowClient]:
        return opened(self.home)

    def create_experiment(self, client: MlflowClient, name: str) -> str:
        folder = artifact_root(self.home) / name
        return str(client.create_experiment(name, folder.as_uri()))

    def tags(self) -> dict[str, str]:
        """Tags by which `owns` recognises a run."""
        return {}

    def owns(self, run: Run) -> bool:
        return self.tags().items() <= run.data.tags.items()

    def remove(self, client: MlflowClient, run: Run) -> None:
        """Delete a run and its files permanently; `MlflowClient.delete_run` alone only hides it."""
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        root = artifact_root(self.home)
        store = SqlAlchemyStore(tracking_uri(self.home), root.as_uri())
        if run.info.lifecycle_stage == "active":
            client.delete_run(run.info.run_id)
        store._hard_delete_run(run.info.run_id)
        for folder in root.glob(f"*/{run.info.run_id}"):
            shutil.rmtree(folder, ignore_errors=True)

    def note_key(self, study: str) -> str:
        """Return the study's key in projected.json."""
        return study


@dataclass(frozen=True)
class TeamServer:
    """An MLflow server that others share."""

    home: Path
    server: str
    """The server's URL, without credentials."""

    def is_usable(self) -> bool:
        return True  # asking would cost a request; `opened` fails if the server is down

    @contextlib.contextmanager
    def opened(self) -> Iterator[MlflowClient]:
        """Yield a client; no other process of this store writes at the same time."""
        with exclusive(self.home), _patient():
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException

            try:
                yield MlflowClient(self.server)
            except (MlflowException, OSError) as error:
                # Errors of the HTTP library are OSErrors without a number; others are this host's.
                is_local = getattr(error, "errno", None) is not None
                if is_local or getattr(error, "error_code", "") == REJECTED:
                    raise
                raise ServiceError(
                    f"MLflow server {self.server}",
                    f"{error}".splitlines()[0],
                    "a server that accepts this user's experiments and runs",
                    "check the server and MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD or"
                    " MLFLOW_TRACKING_TOKEN, then run `lce rebuild mlflow`",
                ) from error

    def create_experiment(self, client: MlflowClient, name: str) -> str:
        return str(client.create_experiment(name))

    def tags(self) -> dict[str, str]:
        return {STORE: _store_id(self.home)}

    def owns(self, run: Run) -> bool:
        return self.tags().items() <= run.data.tags.items() and run.info.lifecycle_stage == "active"

    def remove(self, client: MlflowClient, run: Run) -> None:
        client.delete_run(run.info.run_id)

    def note_key(self, study: str) -> str:
        return f"{study} {self.server}"


Destination = OwnDatabase | TeamServer


def destination(home: Path, server: str | None) -> Destination:
    return OwnDatabase(home) if server is None else TeamServer(home, server)


def _store_id(home: Path) -> str:
    """Return the store's id, which copies of the store keep; create it if there is none."""
    path = home / "store-id"
    if not path.exists():
        path.write_text(uuid.uuid4().hex, encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


@contextlib.contextmanager
def _patient() -> Iterator[None]:
    added: Mapping[str, str] = {
        key: text for key, text in {**QUIET, **_PATIENCE}.items() if key not in os.environ
    }
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            os.environ.pop(key, None)
