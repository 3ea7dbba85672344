"""Builds the catalog from the store and swaps it in.

The new file is written aside and renamed over the old one, so that there is one writer, readers are
never blocked, and a reader with the old file open keeps its snapshot. All tables are materialised:
the file needs no other file. It has the storage version of DuckDB 1.0, which every later release
opens.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
from filelock import FileLock

from catalog.origin import Maker, add_to_note, noted, state_digest
from lce_core.store.artifacts import Store
from lce_core.store.identity import sha256_file

if TYPE_CHECKING:
    import pyarrow as pa

STORAGE_VERSION = "v1.0.0"
CATALOG = "catalog.duckdb"

_SQL = Path(__file__).parent / "sql"
_MAKER = Maker(
    (Path(__file__).parent, Path(__file__).parents[1] / "lce_core"),
    ("duckdb", "pyarrow", "pydantic"),
)
_VIEWS = ("cells", "scores", "provenance", "parts", "by_length", "by_position", "overview")


def build_catalog(store: Store, path: Path | None = None) -> Path:
    """Builds the catalog of everything in the store; returns its path.

    Args:
      store: Records and plans; damaged artifacts are noted, never an error.
      path: Where the catalog goes; by default `catalog.duckdb` in the store's home.

    Raises:
      OSError: the folder cannot be written to; an earlier catalog stays as it was.
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
    note = noted(_note(path))
    return note.get("store") == state and path.is_file() and note.get("sha256") == sha256_file(path)


def _note(path: Path) -> Path:
    return path.with_name(f".{path.name}.origin.json")


def _only_builder(path: Path) -> FileLock:
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(f".{path.name}.lock"))


def _build(store: Store, path: Path, state: str) -> None:
    """Builds; `state` is older than what is read, so that a change meanwhile is built next time."""
    from catalog.extraction import extract  # pyarrow, which nobody else here needs

    with _aside(path) as aside:
        write_tables(extract(store), aside)
        aside.replace(path)
    add_to_note(_note(path), {"store": state, "sha256": sha256_file(path)})


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
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "temp_directory": str(path.parent / "spill"),
    }
    with duckdb.connect(":memory:", config=config) as connection:
        place = str(path).replace("'", "''")
        connection.execute(f"ATTACH '{place}' AS built (STORAGE_VERSION '{STORAGE_VERSION}')")
        connection.execute("USE built")
        connection.execute("BEGIN")  # one transaction: each commit waits for the disk
        connection.execute((_SQL / "schema.sql").read_text(encoding="utf-8"))
        for name, table in tables.items():
            connection.register("rows_to_insert", table)
            connection.execute(f"INSERT INTO store.{name} BY NAME FROM rows_to_insert")
            connection.unregister("rows_to_insert")
        for name in _VIEWS:
            connection.execute((_SQL / f"{name}.sql").read_text(encoding="utf-8"))
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT built")
        connection.execute("USE memory")
        connection.execute("DETACH built")
