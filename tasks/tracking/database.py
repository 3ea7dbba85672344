"""The MLflow that shows a store: the store's own database, or the server of a team.

One process at a time writes to the database. MLflow is imported inside functions, so that callers
which need only the paths do not load it. On a team's server, lce uses the user's MLflow credentials
(MLFLOW_TRACKING_USERNAME, ..._PASSWORD, ..._TOKEN). Several stores may write there; each changes
only the runs with its id.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from filelock import FileLock

from catalog.mlflow_pages import forget_own_pages
from catalog.origin import noted
from lce_core.errors import ServiceError
from lce_core.store.odd_files import make_folder, set_aside
from lce_core.store.records import write_json
from tasks.sqlite_damage import Schema, sqlite_damage, sqlite_url

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_SCHEMA = Schema(
    program="MLflow",
    package="mlflow",
    migrations="store/db_migrations/versions",
    tables=("alembic_version", "experiments"),
    migrates=False,  # MLflow would create its tables, but with another artifact folder
)
REJECTED = "INVALID_PARAMETER_VALUE"
"""MLflow's error code for a text or number that it does not accept."""
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
STORE = "lce.store"
"""Tag on a team's server: id of the store that wrote the run."""
_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "30", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
"""MLflow's own limits, 120 s and 7 retries, would delay the end of a run by many minutes. The
user's variables take precedence."""


def database(home: Path) -> Path:
    return home.absolute() / "mlflow" / "mlflow.db"


def artifact_root(home: Path) -> Path:
    return home.absolute() / "mlflow" / "artifacts"


def tracking_uri(home: Path) -> str:
    return sqlite_url(database(home))


def note(home: Path) -> Path:
    """Return the path of projected.json: by study, a digest of the store's state when written."""
    return database(home).with_name("projected.json")


def has_usable_database(home: Path) -> bool:
    return database(home).exists() and _unusable(home) is None


def damage(home: Path) -> str | None:
    """Return why MLflow cannot use the database, to complete "it is ..."; None if it can."""
    return sqlite_damage(database(home), _SCHEMA)


def set_aside_if_damaged(home: Path) -> None:
    if damage(home) is None:
        return
    with exclusive(home):
        if why := damage(home):  # check again under the lock
            _set_aside(home, why)


def _set_aside(home: Path, why: str) -> None:
    set_aside(database(home), why, along=[artifact_root(home)])


def _unusable(home: Path) -> str | None:
    """Return why this store cannot use the database, like `damage`; it may have been moved.

    The database contains the absolute path of its artifacts, so MLflow would write them to the
    store's old folder.
    """
    if why := damage(home):
        return why
    if database(home).exists() and not _keeps_files_here(home):
        return "of a store in another place"
    return None


def _keeps_files_here(home: Path) -> bool:
    try:
        with contextlib.closing(
            sqlite3.connect(f"{database(home).as_uri()}?mode=ro", uri=True)
        ) as connection:
            # MLflow creates experiment 0 together with the database.
            found = connection.execute(
                "SELECT artifact_location FROM experiments WHERE experiment_id = 0"
            ).fetchone()
    except sqlite3.Error:
        return True  # the next caller that opens the database reports the error
    if found is None:
        return True
    folder = Path(unquote(urlsplit(found[0]).path)).parent
    return folder.resolve() == artifact_root(home).resolve()


def initialise(home: Path) -> None:
    """Create the database if it does not exist or is unusable, from any number of processes.

    A killed process leaves no incomplete database, because a complete one is renamed.
    """
    with opened(home):
        pass


@contextlib.contextmanager
def opened(home: Path) -> Iterator[MlflowClient]:
    with exclusive(home), _environment(QUIET, hides_users=True):
        _create_database(home)
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri(home))
        try:
            yield client
        finally:
            # MLflow caches one engine per address. After this file is deleted and recreated, the
            # pooled connections of the engine would write to the deleted file.
            client._tracking_client.store.engine.dispose()


def runs_of(client: MlflowClient, experiment_id: str) -> list[Run]:
    """Return all runs of an experiment, including deleted ones."""
    from mlflow.entities import ViewType

    found: list[Run] = []
    token = None
    while True:
        page = client.search_runs([experiment_id], "", ViewType.ALL, 1000, page_token=token)
        found.extend(page)
        token = page.token
        if not token:
            return found


def _create_database(home: Path) -> None:
    final = database(home)
    if why := _unusable(home):
        _set_aside(home, why)
    elif final.exists():
        return
    aside = final.with_name(".new.db")
    for leftover in final.parent.glob(".new.db*"):
        leftover.unlink()
    shutil.rmtree(artifact_root(home), ignore_errors=True)  # files of runs that no longer exist
    # A team's server still has what the notes say of it; study names have no spaces.
    write_json(note(home), {key: d for key, d in noted(note(home)).items() if " " in key})
    forget_own_pages(home)
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    SqlAlchemyStore(sqlite_url(aside), artifact_root(home).as_uri()).engine.dispose()
    aside.replace(final)


@contextlib.contextmanager
def exclusive(home: Path) -> Iterator[None]:
    folder = make_folder(database(home).parent)
    with FileLock(folder / ".lock"):
        yield


@contextlib.contextmanager
def _environment(settings: Mapping[str, str], *, hides_users: bool) -> Iterator[None]:
    """Set variables for the block. With `hides_users`, hide all MLFLOW_* variables of the user.

    These could select another server or run. Without it, the user's variables take precedence.
    """

    def taken(added: Collection[str]) -> dict[str, str]:
        names = [k for k in os.environ if k in added or (hides_users and k.startswith("MLFLOW_"))]
        return {key: os.environ.pop(key) for key in names}

    hidden = taken(settings if hides_users else ())
    added = {key: text for key, text in settings.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        taken(added)
        os.environ.update(hidden)


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
        settings = {**QUIET, **_PATIENCE}
        with exclusive(self.home), _environment(settings, hides_users=False):
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
        path = self.home / "store-id"  # copies of the store keep it
        if not path.exists():
            path.write_text(uuid.uuid4().hex, encoding="utf-8")
        return {STORE: path.read_text(encoding="utf-8").strip()}

    def owns(self, run: Run) -> bool:
        return self.tags().items() <= run.data.tags.items() and run.info.lifecycle_stage == "active"

    def remove(self, client: MlflowClient, run: Run) -> None:
        client.delete_run(run.info.run_id)

    def note_key(self, study: str) -> str:
        return f"{study} {self.server}"


Destination = OwnDatabase | TeamServer


def destination(home: Path, server: str | None) -> Destination:
    return OwnDatabase(home) if server is None else TeamServer(home, server)
