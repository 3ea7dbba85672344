"""Build the catalog from the store and replace the old file atomically.

The new file is written to a temporary folder and renamed over the old one. There is one writer,
readers never block, and a reader that has the old file open keeps its snapshot. A damaged or
foreign file in the catalog's place is moved aside, never overwritten. All tables are materialised,
so the file depends on no other file. It uses the storage version of DuckDB 1.0, which every later
release opens.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from filelock import FileLock

from catalog import catalog_path, quoted
from catalog.damage import catalog_damage, is_as_built, marks, note_beside
from catalog.limits import OFFLINE, limits
from catalog.origin import Maker, add_to_note, noted, state_digest
from catalog.paper_tables import paper_table_views
from lce_core.store.artifacts import Store
from lce_core.store.odd_files import set_aside
from lce_core.study.plain_yaml import plain_yaml

if TYPE_CHECKING:
    import pyarrow as pa

STORAGE_VERSION = "v1.0.0"

_SQL = Path(__file__).parent / "sql"
_MAKER = Maker(
    (Path(__file__).parent, Path(__file__).parents[1] / "lce_core"),
    ("duckdb", "numpy", "pyarrow", "pydantic", "scipy"),
)
_VIEWS = (
    "cells",
    "scores",
    "provenance",
    "parts",
    "by_length",
    "by_position",
    "overview",
    "papers",
    "paper_comparison",
    "controls",
    "comparisons",
    "paper_tables",
    "describing",
)
"""SQL files in `sql/` in the order of execution: each view follows the views that it reads."""
_REFERENCE = Path(__file__).parent / "reference"
_PAPER_TABLES = {
    "score": "scores",
    "hyperparameter": "hyperparameters",
    "erratum": "errata",
    "place": "tables",
}
"""CSV file in `reference/` (without .csv) of each table in the schema `papers`."""
_CSV_FORMAT = "AUTO_DETECT false, DELIM ',', QUOTE '\"', ESCAPE '\"', NEW_LINE '\\n'"


def build_catalog(store: Store, *, only_if_changed: bool = False) -> Path:
    """Build the catalog of everything in the store, damaged artifacts too, and return its path.

    With `only_if_changed`, build it only if the store or code changed since the last build.
    """
    path = catalog_path(store.home)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        state = state_digest(store, _MAKER)
        is_of_state = only_if_changed and noted(note_beside(path)).get("store") == state
        if not (is_of_state and path.is_file() and is_as_built(path)):
            _build(store, path, state)
    return path


refresh_catalog = functools.partial(build_catalog, only_if_changed=True)
"""Build the catalog only if the store or code changed since the last build; return its path."""


def _build(store: Store, path: Path, state: str) -> None:
    """Build the catalog and write `state`, the digest of the store, into the note beside it.

    `state` is computed before the store is read. If the store changes in between, the note names
    the older state, and the next refresh builds again.
    """
    # These modules import pyarrow, which only this function needs.
    from catalog.extraction import extract, history

    with _aside(path) as aside:
        write_tables(extract(store), aside, history(store))
        why, log = catalog_damage(path), path.with_name(f"{path.name}.wal")
        if not why and log.exists():
            # DuckDB would replay the old file's write-ahead log into the new catalog.
            why = f"changed by another program ({log.name} lies beside it)"
        if why:
            set_aside(path, why)
        aside.replace(path)
    add_to_note(note_beside(path), {"store": state, **marks(path)})


@contextlib.contextmanager
def _aside(path: Path) -> Iterator[Path]:
    # Only one process builds at a time, so existing temporary folders were left by crashed builds.
    for left in path.parent.glob(f".{path.name}.aside-*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = path.with_name(f".{path.name}.aside-{uuid.uuid4().hex[:8]}")
    folder.mkdir()
    try:
        yield folder / path.name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_tables(
    tables: Mapping[str, pa.Table],
    path: Path,
    history: Mapping[str, pa.Table] | None = None,
) -> None:
    """Write a new catalog to `path`, with all views and the comparisons of methods.

    `tables` and `history` map names of tables in the schemas `store` and `history` to their rows.
    """
    from catalog.comparisons import compared_tables  # imports scipy, which readers do not need

    path.write_bytes(_without_rows())
    with _attached(path) as connection:
        _insert(connection, "store", tables)
        _insert(connection, "history", history or {})
        _insert(connection, "compared", compared_tables(connection))


def _insert(
    connection: duckdb.DuckDBPyConnection, schema: str, tables: Mapping[str, pa.Table]
) -> None:
    for name, table in tables.items():
        if table.num_rows:
            connection.register("rows_to_insert", table)
            connection.execute(f"INSERT INTO {schema}.{name} BY NAME FROM rows_to_insert")
            connection.unregister("rows_to_insert")


@functools.cache
def _without_rows() -> bytes:
    """Return the bytes of a catalog file without rows from a store.

    The result is cached, because creating a few hundred views takes longer than inserting most
    stores' rows.
    """
    with tempfile.TemporaryDirectory(prefix="lce-catalog-") as folder:
        path = catalog_path(Path(folder))
        with _attached(path) as connection:
            for name in ("schema", *_VIEWS):
                connection.execute(_sql(name))
            connection.execute(paper_table_views())  # creates the schema of the views in lceg.sql
            connection.execute(_sql("lceg"))
            _comment_columns(connection)
            load_papers(connection)
        return path.read_bytes()


def _sql(name: str) -> str:
    return (_SQL / f"{name}.sql").read_text(encoding="utf-8")


def _comment_columns(connection: duckdb.DuckDBPyConnection) -> None:
    """Add the comments in `sql/columns.yaml` to the columns of views.

    The entry `shared` is for all columns without another comment, also in schemas `store` and
    `papers`.
    """
    file = _SQL / "columns.yaml"
    texts: dict[str, dict[str, str]] = plain_yaml(file.read_text(encoding="utf-8"), file.name)
    shared = texts.pop("shared")
    for view, own in texts.items():
        for column, text in own.items():
            connection.execute(f"COMMENT ON COLUMN {view}.{column} IS {quoted(text)}")
    columns = connection.execute(
        "SELECT schema_name, table_name, column_name FROM duckdb_columns() c"
        " SEMI JOIN duckdb_views() v"
        " ON v.database_oid = c.database_oid AND v.view_oid = c.table_oid"
        " WHERE database_name = current_database() AND NOT internal AND comment IS NULL"
    ).fetchall()
    for schema, view, column in columns:
        if column in shared:
            comment = quoted(shared[column])
            connection.execute(f"COMMENT ON COLUMN {schema}.{view}.{column} IS {comment}")


@contextlib.contextmanager
def _attached(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection that writes to `path` and commits once, on exit: commits are slow."""
    with duckdb.connect(":memory:", config=OFFLINE) as connection:
        limits(disk=path.parent).apply(connection, path.parent / "spill")
        connection.execute(f"ATTACH {quoted(path)} AS built (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE built")
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT built")
        connection.execute("USE memory")
        connection.execute("DETACH built")


def load_papers(connection: duckdb.DuckDBPyConnection) -> None:
    """Load the CSV files in `reference/` (figures printed in papers) into the schema `papers`."""
    for table, file in _PAPER_TABLES.items():
        # COPY takes the name for a pattern.
        source = quoted(glob.escape(str(_REFERENCE / f"{file}.csv")))
        connection.execute(
            f"COPY papers.{table} FROM {source} (FORMAT csv, HEADER, NULLSTR '', {_CSV_FORMAT})"
        )
