"""Rename a damaged database, so that lce can create a new one and the user can inspect it.

A damaged database must not stop a command. lce can rebuild the catalog and MLflow's database from
the store; Prefect's database contains only the history of runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lce_core.errors import StoreError

SIDE_FILES = ("-wal", "-shm", "-journal", ".wal")
"""Suffixes of files that SQLite and DuckDB write beside a database."""


def set_aside(path: Path, why: str, along: Sequence[Path] = ()) -> None:
    """Rename a database and its side files, and say so on standard error.

    The caller holds the lock under which lce creates the database. `why` completes "it is ...".
    `along` are further paths that belong to the database.
    """
    mark = free_mark(path)
    # Rename side files first: a new database would replay an old write-ahead log beside it.
    sides = [path.with_name(path.name + end) for end in SIDE_FILES]
    moves = [(side, f"{path.name}{mark}{side.name[len(path.name) :]}") for side in sides]
    moves += [(one, f"{one.name}{mark}") for one in (*along, path)]
    for source, name in moves:
        try:
            source.rename(source.with_name(name))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(
                path,
                f"a database that is {why} and cannot be renamed ({error.strerror})",
                "a database that works, or a folder in which lce can rename it",
                "make the folder writable, or move the database to another place",
            ) from None
    sys.stderr.write(
        f"lce: {path} cannot be used: it is {why}. lce renamed it to {path.name}{mark} and"
        " creates a new one.\n"
    )
    sys.stderr.flush()


def free_mark(path: Path) -> str:
    """Return an unused suffix for a renamed file: ".set-aside-" and the UTC time."""
    first = mark = time.strftime(".set-aside-%Y%m%dT%H%M%SZ", time.gmtime())
    number = 1
    while path.with_name(path.name + mark).exists():
        number += 1
        mark = f"{first}-{number}"
    return mark
