"""Reads the catalog: one read-only query at a time, with limits of time, memory and result.

The file is opened read-only, without access to other files, and with its settings locked, so that
SQL of unknown origin can do no harm. Whatever is wrong with a query is a SpecError. A statement
that a user wrote runs in a process of its own (`catalog.apart`): DuckDB does not count all memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from catalog.limits import (
    QUERY_SECONDS,
    Limits,
    limits,
    out_of_memory,
    too_large,
    too_slow,
)
from lce_core.errors import SpecError, StoreError

CATALOG = "catalog.duckdb"
"""Name of the file in the store's home."""

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    # Sums of floats in one order: the same catalog gives the same digits every time.
    "threads": "1",
}
# MULTI is PIVOT with columns found in the data: DuckDB counts its temporary type as a statement.
_DAMAGE = (
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.IOException,
    duckdb.SerializationException,
)
"""What DuckDB raises while it reads a damaged file."""
_READS = {"SELECT", "EXPLAIN", "MULTI"}
_READ_ONLY = "one statement that reads: SELECT (or FROM, WITH, DESCRIBE, SHOW, PIVOT, EXPLAIN)"
_ROWS_AT_A_TIME = 10_000
_FIRST_ROWS = 100
_BYTES_AT_A_TIME = 4 << 20
_CONTAINERS = (list, tuple, dict)


def open_catalog(path: Path, within: Limits | None = None) -> duckdb.DuckDBPyConnection:
    """Opens the catalog for reading; close it, or use it as a context manager.

    The connection keeps the file it opened even when a new catalog is swapped in.

    Args:
      path: The catalog.
      within: Bounds of memory and temporary files; None: those that `catalog.limits` gives now.

    Raises:
      SpecError: there is no catalog at `path`, or the file is not one.
    """
    expected = "the catalog, a DuckDB file made from the store"
    remedy = "let `lce run STUDY` make it as it finishes, or `lce rebuild catalog` make it again"
    if not path.is_file():
        raise SpecError(path, "no such file", expected, remedy)
    # Attached to an instance of its own: connecting to the path again would, within one process,
    # give the instance that is open already and with it the file from before the last swap.
    connection = duckdb.connect(":memory:", config=_CONFIG)
    # DuckDB removes the folder when the connection closes.
    spill = Path(tempfile.gettempdir()) / f"lce-sql-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    (within or limits()).apply(connection, spill)
    place = str(path).replace("'", "''")
    try:
        connection.execute(f"ATTACH '{place}' AS catalog (READ_ONLY)")
    except duckdb.Error as error:
        connection.close()
        raise SpecError(path, error, expected, remedy) from None
    connection.execute("USE catalog")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def run_query(
    path: Path,
    sql: str,
    limit: float = QUERY_SECONDS,
    *,
    parameters: Mapping[str, Any] | None = None,
    most_rows: int | None = None,
    within: Limits | None = None,
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of one read-only query.

    Args:
      path: The catalog.
      sql: One statement that reads; a closing semicolon is fine.
      limit: Seconds after which the query is stopped.
      parameters: Values of the `$name`s in the statement.
      most_rows: Rows after which no more are read; None: all of them.
      within: Bounds of memory, temporary files and result; None: those that hold now.

    Raises:
      SpecError: no catalog; not exactly one statement; a statement that is not a read; an error in
        the SQL (the message names similar tables or columns); more than `limit` seconds; more
        memory or a larger result than `within` allows.
    """
    found = read_blocks(
        path, sql, limit, parameters=parameters, most_rows=most_rows, within=within or limits()
    )
    columns = [str(name) for name in next(found)]
    return columns, [row for block in found for row in block]


def read_blocks(
    path: Path,
    sql: str,
    limit: float,
    *,
    parameters: Mapping[str, Any] | None = None,
    most_rows: int | None = None,
    within: Limits,
) -> Iterator[Sequence[Any]]:
    """Yield the column names, then blocks of rows of a few megabytes; see `run_query`."""
    with open_catalog(path, within) as connection:
        statement = _only_read(connection, sql)
        deadline = time.monotonic() + limit
        try:
            with _interrupted_after(connection, limit):
                found = connection.execute(statement, dict(parameters or {}))
                yield [str(column[0]) for column in found.description or ()]
                num_rows = size = 0
                while block := found.fetchmany(_room(num_rows, size, most_rows)):
                    num_rows += len(block)
                    size += sum(map(_size, block))
                    if size > within.result:
                        raise too_large(sql, num_rows, within)
                    yield block
                    if time.monotonic() > deadline:
                        raise duckdb.InterruptException
        except duckdb.InterruptException:
            raise too_slow(sql, limit) from None
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            message = str(error).partition("\n")[0] or "no memory for its answer"
            raise out_of_memory(sql, message, within) from None
        except _DAMAGE as error:
            raise as_store_error(error, path) from None
        except duckdb.Error as error:
            raise _explained(connection, sql, error) from None


def as_store_error(error: Exception, path: Path) -> Exception:
    """Return a StoreError in the place of an error of DuckDB's about a damaged catalog."""
    if not isinstance(error, duckdb.Error):
        return error
    return StoreError(
        path,
        str(error).splitlines()[0],
        "the catalog as it was built",
        "build it again with `lce rebuild catalog`",
    )


def logical_digest(path: Path) -> str:
    """sha256 of all rows of all tables, 64 hex digits; equal for two builds from one store.

    Raises:
      SpecError: there is no catalog at `path`.
    """
    digest = hashlib.sha256()
    with open_catalog(path) as connection:
        tables = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'store' ORDER BY ALL"
        ).fetchall()
        for (name,) in tables:
            # A hash per row first, so that the order of rows does not matter and memory is bounded.
            rows = connection.execute(
                f"SELECT sha256(string_agg(row_hash, '' ORDER BY row_hash)) FROM "
                f"(SELECT sha256(to_json(t)::VARCHAR) AS row_hash FROM store.{name} t)"
            ).fetchone()
            digest.update(f"{name}={rows[0] if rows else None}\n".encode())
    return digest.hexdigest()


def _room(num_rows: int, size: int, most_rows: int | None) -> int:
    """How many rows to read next: about 4 MB of rows as large as those before."""
    room = _FIRST_ROWS if not num_rows else max(1, _BYTES_AT_A_TIME * num_rows // max(1, size))
    room = min(room, _ROWS_AT_A_TIME)
    return room if most_rows is None else min(room, most_rows - num_rows)


def _size(value: Any) -> int:
    """Bytes of a value with all that it holds."""
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(_size(key) + _size(item) for key, item in value.items())
    if not isinstance(value, list | tuple):
        return size
    return size + sum(_size(v) if isinstance(v, _CONTAINERS) else sys.getsizeof(v) for v in value)


def _only_read(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise _explained(connection, sql, error) from None
    if len(statements) != 1:
        raise SpecError(
            "SQL",
            f"{len(statements)} statements in {sql!r}",
            _READ_ONLY,
            "give one query at a time",
        )
    kind = _kind(statements[0])
    if kind not in _READS:
        raise SpecError(
            "SQL",
            f"{sql} ({kind})",
            _READ_ONLY,
            "change the study and run it to change results; the catalog follows",
        )
    return statements[0]


def _kind(statement: duckdb.Statement) -> str:
    try:
        return statement.type.name
    except ValueError:  # a statement newer than the Python enumeration
        return "unknown statement"


def _explained(connection: duckdb.DuckDBPyConnection, sql: str, error: duckdb.Error) -> SpecError:
    message = str(error)
    if isinstance(error, duckdb.PermissionException) or "read-only mode" in message:
        return SpecError(
            "SQL",
            f"{sql} ({message})",
            _READ_ONLY,
            "leave out files, settings and other databases, which are out of reach of a query",
        )
    views = None
    with contextlib.suppress(duckdb.Error):  # of a connection that the error has made useless
        views = connection.execute(
            "SELECT string_agg(view_name, ', ' ORDER BY view_name) FROM duckdb_views()"
            " WHERE schema_name = 'main' AND NOT internal"
        ).fetchone()
    return SpecError(
        "SQL",
        f"{sql} ({message})",
        f"a query over the views {views[0] if views else ''}",
        "correct it; `DESCRIBE scores` lists the columns of a view",
    )


@contextlib.contextmanager
def _interrupted_after(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
