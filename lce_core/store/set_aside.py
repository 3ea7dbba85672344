"""Renames a database that cannot be used, so that a new one can take its place.

Catalog, MLflow's database and Prefect's are made from the store or hold the history of runs only.
A damaged one therefore stops no command. It is never deleted: a user may want to look into it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lce_core.errors import StoreError

SIDE_FILES = ("-wal", "-shm", "-journal", ".wal")
"""Ends of the names of files that SQLite and DuckDB write beside a database."""


def set_aside(path: Path, why: str, along: Sequence[Path] = ()) -> None:
    """Rename a database with its side files, and print one line about it to standard error.

    The caller holds the lock of whoever makes the database.

    Args:
      path: the database, a file or whatever lies in its place.
      why: what is wrong with it, to follow "it is": "damaged (...)", "a folder".
      along: further files or folders that only this database knows; renamed as well.

    Raises:
      StoreError: the folder takes no new name.
    """
    mark = _free_mark(path)
    # Side files go first: a new database beside an old write-ahead log would replay it.
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
                "a database that can be used, or a folder in which it can be renamed",
                "make the folder writable, or move the database away",
            ) from None
    sys.stderr.write(
        f"lce: {path} cannot be used: it is {why}. It is kept as {path.name}{mark};"
        " a new one is made.\n"
    )
    sys.stderr.flush()


def _free_mark(path: Path) -> str:
    """Return an end of a name that nothing beside `path` has yet."""
    first = mark = time.strftime(".set-aside-%Y%m%dT%H%M%SZ", time.gmtime())
    number = 1
    while path.with_name(path.name + mark).exists():
        number += 1
        mark = f"{first}-{number}"
    return mark
