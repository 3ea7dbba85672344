"""MLflow's database of a store: where it lies, how it is made, and who may write to it.

It is one file that one process at a time writes to. MLflow itself is imported inside functions
only: where its files lie is known without it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from filelock import FileLock

from catalog.mlflow_pages import note_path
from lce_core.store.odd_files import make_folder
from lce_core.store.set_aside import set_aside
from tasks.sqlite_damage import Schema, sqlite_damage

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_SCHEMA = Schema(
    program="MLflow",
    package="mlflow",
    migrations="store/db_migrations/versions",
    tables=("alembic_version", "experiments"),
    fills_empty=False,  # it would, but with a folder for files that lies elsewhere
    migrates=False,
)
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}


def database(home: Path) -> Path:
    """MLflow's database of a store."""
    return home.absolute() / "mlflow" / "mlflow.db"


def artifact_root(home: Path) -> Path:
    """Folder in which MLflow keeps the files of its runs."""
    return home.absolute() / "mlflow" / "artifacts"


def tracking_uri(home: Path) -> str:
    """What `mlflow server --backend-store-uri` and MLFLOW_TRACKING_URI take."""
    return f"sqlite:///{database(home)}"


def note(home: Path) -> Path:
    """The file that says of which state of the store each study is shown."""
    return database(home).with_name("projected.json")


def is_here(home: Path) -> bool:
    """Return True if there is a database that this store can use; imports no MLflow."""
    return database(home).exists() and _unusable(home) is None


def damage(home: Path) -> str | None:
    """Return what is wrong with the database, to follow "it is"; None if nothing is, or no file."""
    return sqlite_damage(database(home), _SCHEMA)


def set_aside_if_damaged(home: Path) -> None:
    """Set the database aside if it is damaged or foreign; whoever needs one makes it.

    Raises:
      StoreError: the database cannot be renamed.
    """
    if damage(home) is None:
        return
    with _exclusive(home):
        if why := damage(home):  # nobody else has set it aside meanwhile
            _set_aside(home, why)


def _set_aside(home: Path, why: str) -> None:
    set_aside(database(home), why, along=[artifact_root(home)])


def _unusable(home: Path) -> str | None:
    """Return why this store cannot use the database, to follow "it is"; None if it can.

    A database names its files by their place: in a store that was moved or copied it would write to
    the old one.
    """
    if why := damage(home):
        return why
    there = database(home).exists()
    return "of a store in another place" if there and not _keeps_files_here(home) else None


def _keeps_files_here(home: Path) -> bool:
    try:
        with contextlib.closing(
            sqlite3.connect(f"{database(home).as_uri()}?mode=ro", uri=True)
        ) as it:
            # The experiment that MLflow itself makes with the database.
            found = it.execute(
                "SELECT artifact_location FROM experiments WHERE experiment_id = 0"
            ).fetchone()
    except sqlite3.Error:
        return True  # whoever opens it says what is wrong with it
    if found is None:
        return True
    folder = Path(unquote(urlsplit(found[0]).path)).parent
    return folder.resolve() == artifact_root(home).resolve()


def initialise(home: Path) -> None:
    """Creates the database if it is not there; several processes may call it at once.

    One that cannot be used is set aside. A new one is migrated aside and renamed into place: a
    process killed on the way leaves nothing behind that looks like a database.
    """
    with _exclusive(home):
        _create_database(home)


@contextlib.contextmanager
def opened(home: Path) -> Iterator[MlflowClient]:
    """A client of the database, made if it is not there; nobody else writes meanwhile."""
    with _exclusive(home), _own_environment():
        _create_database(home)
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri(home))
        try:
            yield client
        finally:
            # MLflow keeps an engine per address for good. Its pooled connections would go on with
            # this file after it was deleted and made again, and what they write would be gone.
            client._tracking_client.store.engine.dispose()


def runs_of(client: MlflowClient, experiment_id: str) -> list[Run]:
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


def remove(client: MlflowClient, home: Path, run: Run) -> None:
    """Deletes a run and its files for good, as `mlflow gc` does: a deleted run is only hidden."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(tracking_uri(home), artifact_root(home).as_uri())
    if run.info.lifecycle_stage == "active":
        client.delete_run(run.info.run_id)
    store._hard_delete_run(run.info.run_id)
    for folder in artifact_root(home).glob(f"*/{run.info.run_id}"):
        shutil.rmtree(folder, ignore_errors=True)


def _create_database(home: Path) -> None:
    final = database(home)
    if why := _unusable(home):
        _set_aside(home, why)
    elif final.exists():
        return
    aside = final.with_name(".new.db")
    for leftover in final.parent.glob(".new.db*"):
        leftover.unlink()
    shutil.rmtree(artifact_root(home), ignore_errors=True)  # files of runs that are gone
    note(home).unlink(missing_ok=True)
    note_path(home).unlink(missing_ok=True)
    with _own_environment():
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        store = SqlAlchemyStore(f"sqlite:///{aside}", artifact_root(home).as_uri())
        store.engine.dispose()
    aside.replace(final)


@contextlib.contextmanager
def _exclusive(home: Path) -> Iterator[None]:
    folder = make_folder(database(home).parent)
    with FileLock(folder / ".lock"):
        yield


@contextlib.contextmanager
def _own_environment() -> Iterator[None]:
    """Hides the user's MLFLOW_* variables, which choose servers, runs and pools, from MLflow."""
    hidden = _take_from_environment()
    os.environ.update(_QUIET)
    try:
        yield
    finally:
        _take_from_environment()
        os.environ.update(hidden)


def _take_from_environment() -> dict[str, str]:
    """Removes the variables that MLflow reads; returns what they were."""
    names = [key for key in os.environ if key.startswith("MLFLOW_") or key in _QUIET]
    return {key: os.environ.pop(key) for key in names}
