"""Builds the catalog from the store and swaps it in.

The new file is written aside and renamed over the old one, so that there is one writer, readers are
never blocked, and a reader with the old file open keeps its snapshot. A damaged or foreign file in
its place is set aside, never overwritten. All tables are materialised:
the file needs no other file. It has the storage version of DuckDB 1.0, which every later release
opens.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from filelock import FileLock

from catalog.damage import catalog_damage, is_as_built, marks, note_beside
from catalog.limits import limits
from catalog.notes import add_to_note, noted
from catalog.origin import Maker, state_digest
from catalog.paper_tables import paper_table_views
from catalog.queries import CATALOG
from lce_core.store.artifacts import Store
from lce_core.store.set_aside import set_aside

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
    "seeds",
    "paper_tables",
)
_PAPER_VIEWS = ("paper_training", "paper_figures")
"""Views in the schemas that `paper_table_views` creates."""
_REFERENCE = Path(__file__).parent / "reference"
_PAPER_TABLES = {
    "score": "scores",
    "hyperparameter": "hyperparameters",
    "erratum": "errata",
    "place": "tables",
}
"""The papers' figures: file by table."""
_FORM = "AUTO_DETECT false, DELIM ',', QUOTE '\"', ESCAPE '\"', NEW_LINE '\\n'"


def build_catalog(store: Store, path: Path | None = None) -> Path:
    """Builds the catalog of everything in the store; returns its path.

    Args:
      store: Records and plans; damaged artifacts are noted, never an error.
      path: Where the catalog goes; by default `catalog.duckdb` in the store's home.

    Raises:
      OSError: the folder cannot be written to; an earlier catalog stays as it was.
      StoreError: a damaged file lies in the catalog's place and cannot be renamed.
    """
    path = path or store.home / CATALOG
    with _only_builder(path):
        _build(store, path, state_digest(store, _MAKER))
    return path


def refresh_catalog(store: Store, path: Path | None = None) -> Path:
    """As `build_catalog`, but keeps a catalog that a build would give again."""
    path = path or store.home / CATALOG
    with _only_builder(path):
        state = state_digest(store, _MAKER)
        if not _is_current(path, state):
            _build(store, path, state)
    return path


def _is_current(path: Path, state: str) -> bool:
    """Whether the file is the one that was built from a store in this state."""
    note = noted(note_beside(path))
    return note.get("store") == state and path.is_file() and is_as_built(path)


def _only_builder(path: Path) -> FileLock:
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.name}.lock"))


def _build(store: Store, path: Path, state: str) -> None:
    """Builds; `state` is older than what is read, so that a change meanwhile is built next time."""
    from catalog.extraction import extract  # pyarrow, which nobody else here needs

    with _aside(path) as aside:
        write_tables(extract(store), aside)
        if why := catalog_damage(path) or _opened_for_writing(path):
            set_aside(path, why)
        aside.replace(path)
    add_to_note(note_beside(path), {"store": state, **marks(path)})


def _opened_for_writing(path: Path) -> str | None:
    # The log belongs to the file that is there; the new catalog would replay it.
    log = path.with_name(f"{path.name}.wal")
    return f"changed by another program ({log.name} lies beside it)" if log.exists() else None


@contextlib.contextmanager
def _aside(path: Path) -> Iterator[Path]:
    # Under the lock nobody else builds, so every other aside folder was left by a dead builder.
    for left in path.parent.glob(f".{path.name}.aside-*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = path.with_name(f".{path.name}.aside-{uuid.uuid4().hex[:8]}")
    folder.mkdir()
    try:
        yield folder / path.name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_tables(tables: Mapping[str, pa.Table], path: Path) -> None:
    """Writes a catalog, views included, of tables as `extract` gives them; `path` must be new."""
    from catalog.comparisons import fill_comparisons  # scipy, which no reader of a catalog needs

    path.write_bytes(_without_rows())
    with _attached(path) as connection:
        for name, table in tables.items():
            connection.register("rows_to_insert", table)
            connection.execute(f"INSERT INTO store.{name} BY NAME FROM rows_to_insert")
            connection.unregister("rows_to_insert")
        fill_comparisons(connection)


@functools.cache
def _without_rows() -> bytes:
    """The catalog of an empty store; kept, for a few hundred views take longer than most rows."""
    with tempfile.TemporaryDirectory(prefix="lce-catalog-") as folder:
        path = Path(folder) / CATALOG
        with _attached(path) as connection:
            for name in ("schema", *_VIEWS):
                connection.execute(_sql(name))
            connection.execute(paper_table_views())
            for name in _PAPER_VIEWS:
                connection.execute(_sql(name))
            load_papers(connection)
        return path.read_bytes()


def _sql(name: str) -> str:
    return (_SQL / f"{name}.sql").read_text(encoding="utf-8")


@contextlib.contextmanager
def _attached(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that writes to `path`, in one transaction: each commit waits for the disk."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    with duckdb.connect(":memory:", config=config) as connection:
        limits(disk=path.parent).apply(connection, path.parent / "spill")
        place = str(path).replace("'", "''")
        connection.execute(f"ATTACH '{place}' AS built (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE built")
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT built")
        connection.execute("USE memory")
        connection.execute("DETACH built")


def load_papers(connection: duckdb.DuckDBPyConnection) -> None:
    """Fills the tables of `sql/papers.sql` with the figures that the papers print."""
    for table, file in _PAPER_TABLES.items():
        place = str(_REFERENCE / f"{file}.csv").replace("'", "''")
        connection.execute(
            f"COPY papers.{table} FROM '{place}' (FORMAT csv, HEADER, NULLSTR '', {_FORM})"
        )
