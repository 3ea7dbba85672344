"""Prefect's database of a store: the history of runs, which no result depends on."""

from __future__ import annotations

from pathlib import Path

from lce_core.store.set_aside import set_aside
from tasks.sqlite_damage import Schema, sqlite_damage

_SCHEMA = Schema(
    program="Prefect",
    package="prefect",
    migrations="server/database/_migrations/versions/sqlite",
    tables=("alembic_version",),  # the first that Prefect makes: its server may be starting
    fills_empty=True,
    migrates=True,
)


def prefect_database(home: Path) -> Path:
    """Return the place of the database that Prefect's servers of a home share."""
    return home / "prefect" / "prefect.db"


def prefect_damage(home: Path) -> str | None:
    """Return what is wrong with the database, to follow "it is"; None if nothing is, or no file."""
    return sqlite_damage(prefect_database(home), _SCHEMA)


def mend_prefect(home: Path) -> None:
    """Set a database aside that Prefect's server could not start with; the server makes a new one.

    Call it before a server starts, never beside one that runs.

    Raises:
      StoreError: the database cannot be renamed.
    """
    if why := prefect_damage(home):
        set_aside(prefect_database(home), why)
