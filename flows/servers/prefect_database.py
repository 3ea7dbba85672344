"""Prefect's database of a store. It contains the history of runs; no result depends on it."""

from __future__ import annotations

from pathlib import Path

from lce_core.store.odd_files import set_aside
from tasks.sqlite_damage import Schema, sqlite_damage

_SCHEMA = Schema(
    program="Prefect",
    package="prefect",
    migrations="server/database/_migrations/versions/sqlite",
    tables=("alembic_version",),  # Prefect's first table: its server may still be starting
    fills_empty=True,
    migrates=True,
)


def prefect_database(home: Path) -> Path:
    return home / "prefect" / "prefect.db"


def prefect_damage(home: Path) -> str | None:
    """Return why Prefect cannot use the database, as a phrase that completes "it is ..."."""
    return sqlite_damage(prefect_database(home), _SCHEMA)


def mend_prefect(home: Path) -> None:
    """Rename an unusable database before a server starts, so that the server creates a new one."""
    # Never while a server runs: it would go on writing to the renamed file.
    if why := prefect_damage(home):
        set_aside(prefect_database(home), why)
