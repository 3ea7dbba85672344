"""Says why an SQLite database of MLflow or Prefect cannot be used, without changing it.

Only damage counts, and another program's tables. A database that is locked, out of reach, or on a
full disk is healthy as far as anybody knows: whoever opens it reports what is wrong.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import re
import sqlite3
import stat
import time
from dataclasses import dataclass
from pathlib import Path

CHECK_SECONDS = 1.0
"""Longest check of all pages; 1 GB takes about half a second when it is in memory."""
LOCK_SECONDS = 1.0
"""Longest wait for a lock, after which the database counts as healthy."""

_START = b"SQLite format 3\0"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REVISION = re.compile(r"""^(down_)?revision\b[^=\n]*=\s*["'](\w+)["']""", re.MULTILINE)
_STRUCTURE = ("*** in database", "Tree ", "Page ", "Freelist", "On tree page")
"""Starts of lines of `PRAGMA quick_check` about pages. Other lines are about values in rows."""


@dataclass(frozen=True)
class Schema:
    """Tables that a program expects in its database, and the migrations it can start from."""

    program: str
    package: str
    migrations: str
    """Folder of Alembic's revisions in the package."""
    tables: tuple[str, ...]
    """Tables without which the program does not start."""
    fills_empty: bool
    """Whether the program makes its tables in an empty database."""
    migrates: bool
    """Whether the program brings an older database up to date itself."""


def sqlite_damage(path: Path, schema: Schema) -> str | None:
    """Return what is wrong with a database, to follow "it is"; None if nothing is, or no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    if stat.S_ISDIR(found.st_mode):
        return "a folder"
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    log = path.with_name(f"{path.name}-wal")
    if not found.st_size and log.is_file() and log.stat().st_size:
        return "empty, beside a write-ahead log"  # which SQLite would delete
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=LOCK_SECONDS, uri=True)
        ) as database:
            return _foreign(database, schema) or _torn(database)
    except sqlite3.Error as error:
        # The low byte is the kind of error; a lock, a permission or a full disk is no damage.
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGED:
            return f"damaged ({error})"
        # Beside a journal that is to be rolled back, SQLite does not say what the file is.
        return None if _begins_as_database(path) else "damaged (file is not a database)"


def _begins_as_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(len(_START))
    except OSError:
        return True  # as far as anybody knows
    return not start or start == _START


def _foreign(database: sqlite3.Connection, schema: Schema) -> str | None:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    if not tables and schema.fills_empty:
        return None
    if missing := [name for name in schema.tables if name not in tables]:
        return f"no database of {schema.program} (without the table {missing[0]})"
    known = _revisions(schema)
    found = [row[0] for row in database.execute("SELECT version_num FROM alembic_version")]
    if known and (unknown := [one for one in found if one not in known]):
        return f"of another release of {schema.program} (revision {unknown[0]})"
    return None


def _torn(database: sqlite3.Connection) -> str | None:
    limit = time.monotonic() + CHECK_SECONDS
    database.set_progress_handler(lambda: time.monotonic() > limit, 10_000)
    (line,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if not line.startswith(_STRUCTURE):
        return None
    return f"damaged ({' '.join(line.split())})"


@functools.cache
def _revisions(schema: Schema) -> frozenset[str]:
    """Return the revisions that the installed release can start from; empty if it hides them."""
    found = importlib.util.find_spec(schema.package)  # imports nothing of the package
    folders = (found.submodule_search_locations if found else None) or []
    own: set[str] = set()
    older: set[str] = set()
    for folder in folders:
        for file in (Path(folder) / schema.migrations).glob("*.py"):
            for is_older, revision in _REVISION.findall(file.read_text(encoding="utf-8")):
                (older if is_older else own).add(revision)
    return frozenset(own if schema.migrates else own - older)
