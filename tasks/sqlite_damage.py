"""Detect why an SQLite database of MLflow or Prefect is unusable, without changing it.

It has damaged pages, lacks a table or has an unknown schema revision. A locked, unreachable or full
one counts as usable; the program that opens it reports the error.
"""

import contextlib
import functools
import importlib.util
import re
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from lce_core.store.odd_files import odd_kind

CHECK_SECONDS = 1.0
"""Time limit of the page check. A 1 GB database in the page cache takes 0.5 s."""
LOCK_SECONDS = 1.0
"""Time after which a locked database counts as usable."""

_START = b"SQLite format 3\0"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REVISION = re.compile(r"""^(down_)?revision\b[^=\n]*=\s*["'](\w+)["']""", re.MULTILINE)
_STRUCTURE = ("*** in database", "Tree ", "Page ", "Freelist", "On tree page")
"""Lines of `PRAGMA quick_check` about damaged pages. Other lines concern single values, such as a
NULL in a NOT NULL column, and are ignored."""


@dataclass(frozen=True)
class Schema:
    """Tables and Alembic revisions that a program (MLflow or Prefect) requires in its database."""

    program: str
    package: str
    migrations: str
    """Folder of the Alembic revisions in the package."""
    tables: tuple[str, ...]
    """Tables that the program needs to start."""
    migrates: bool
    """True if the program, when it starts, migrates a database of an older release and creates its
    tables in an empty one."""


def sqlite_url(path: Path, dialect: str = "sqlite") -> str:
    text = str(path.absolute())
    if "%" in text and dialect == "sqlite":
        # MLflow creates the folder that it reads, undecoded, from a URL without a driver.
        dialect = "sqlite+pysqlite"
    # SQLAlchemy decodes percent escapes. `check_home` refuses question marks.
    return f"{dialect}:///{text.replace('%', '%25')}"


def sqlite_damage(path: Path, schema: Schema) -> str | None:
    """Return why `schema.program` cannot use the file, to complete "it is ...".

    None if the database is usable or missing, or cannot be read at the moment.
    """
    try:
        if odd := odd_kind(path):
            return odd
        is_empty = not path.stat().st_size
    except OSError:
        return None
    log = path.with_name(f"{path.name}-wal")
    if is_empty and log.is_file() and log.stat().st_size:
        return "empty, beside a write-ahead log"  # SQLite would delete the log
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=LOCK_SECONDS, uri=True)
        ) as database:
            database.text_factory = lambda text: text.decode("utf-8", "replace")
            return _foreign(database, schema) or _torn(database)
    except UnicodeDecodeError:  # sqlite3 raises it for a message that quotes damaged bytes
        return "damaged (text that is not UTF-8)"
    except sqlite3.Error as error:
        # The low byte is the primary error code. Locks, permissions or a full disk are no damage.
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGED:
            return f"damaged ({error})"
        # Beside a hot journal, SQLite does not report that the file is not a database.
        return None if _begins_as_database(path) else "damaged (file is not a database)"


def _begins_as_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(len(_START))
    except OSError:
        return True  # unreadable, so not known to be damaged
    return not start or start == _START


def _foreign(database: sqlite3.Connection, schema: Schema) -> str | None:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    if not tables and schema.migrates:
        return None
    if missing := [name for name in schema.tables if name not in tables]:
        return f"no database of {schema.program} (without the table {missing[0]})"
    known = _revisions(schema)
    found = [row[0] for row in database.execute("SELECT version_num FROM alembic_version")]
    if known and (unknown := [one for one in found if one not in known]):
        return f"of another release of {schema.program} (revision {unknown[0]})"
    return None


def _torn(database: sqlite3.Connection) -> str | None:
    deadline = time.monotonic() + CHECK_SECONDS
    # SQLite calls this every 10,000 instructions, and interrupts the check if it returns True.
    database.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    (line,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if not line.startswith(_STRUCTURE):
        return None
    return f"damaged ({' '.join(line.split())})"


@functools.cache
def _revisions(schema: Schema) -> frozenset[str]:
    """Return the Alembic revisions that the installed release accepts; an empty set accepts any."""
    found = importlib.util.find_spec(schema.package)  # does not import the package
    folders = (found.submodule_search_locations if found else None) or []
    own: set[str] = set()
    older: set[str] = set()
    for folder in folders:
        for file in (Path(folder) / schema.migrations).glob("*.py"):
            for is_older, revision in _REVISION.findall(file.read_text(encoding="utf-8")):
                (older if is_older else own).add(revision)
    return frozenset(own if schema.migrates else own - older)
