"""Diagnose a catalog file without changing it.

The functions detect damage, an unsupported storage version, and databases that are not catalogs. A
file that is locked, unreadable, or too large for memory counts as healthy: the error appears when
the file is opened.
"""

from pathlib import Path

import duckdb

from catalog import quoted
from catalog.limits import OFFLINE
from lce_core.store.identity import sha256_file
from lce_core.store.odd_files import odd_kind

_DAMAGED = (
    "not a valid DuckDB database file",
    "Corrupt database file",
    "Could not read enough bytes",
    "database file with version number",
    "encrypted",
    "deserialize",
)
"""Phrases in DuckDB's messages about a damaged file. The exception class does not suffice, because
DuckDB raises the same classes for other problems, such as a locked file."""


def catalog_damage(path: Path) -> str | None:
    """Return what is wrong with a catalog, worded to follow "it is"; None if healthy or missing.

    A file that is unchanged since it was built is healthy. Of any other file every block is read,
    because DuckDB opens files whose first blocks are undamaged.
    """
    try:
        if odd := odd_kind(path):
            return odd
        if is_as_built(path):
            return None
        with duckdb.connect(
            ":memory:", config=OFFLINE | {"memory_limit": "1GB", "threads": "1"}
        ) as connection:
            connection.execute(f"ATTACH {quoted(path)} AS catalog (READ_ONLY)")
            tables = connection.execute(
                "SELECT schema_name, table_name FROM duckdb_tables()"
                " WHERE database_name = 'catalog'"
            ).fetchall()
            if ("store", "cell") not in tables:
                return "a database of another program (it has no table store.cell)"
            for schema, name in tables:
                hashed = f'SELECT max(hash(one)) FROM catalog."{schema}"."{name}" one'
                connection.execute(hashed).fetchall()
            return None
    except OSError:
        return None
    except (duckdb.Error, RuntimeError) as error:
        if any(part in str(error) for part in _DAMAGED):
            return f"damaged ({str(error).splitlines()[0]})"
        return None


def note_beside(path: Path) -> Path:
    """Return the path of a catalog's note (see `catalog.origin`)."""
    return path.with_name(f".{path.name}.origin.json")


def marks(path: Path) -> dict[str, str]:
    return {"sha256": sha256_file(path), "stat": _times(path)}


def is_as_built(path: Path) -> bool:
    """Return True if the file has the times or the sha256 that its note recorded at the build."""
    from catalog.origin import noted  # loads pyarrow, which readers of the catalog do not need

    note = noted(note_beside(path))
    return note.get("stat") == _times(path) or note.get("sha256") == sha256_file(path)


def _times(path: Path) -> str:
    found = path.stat()
    return f"{found.st_size} {found.st_ino} {found.st_mtime_ns} {found.st_ctime_ns}"
