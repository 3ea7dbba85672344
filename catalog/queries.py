"""Reads the catalog: one read-only query at a time, with a time limit.

The file is opened read-only, without access to other files, and with its settings locked, so that
SQL of unknown origin can do no harm. Whatever is wrong with a query is a SpecError.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb

from lce_core.errors import SpecError

CATALOG = "catalog.duckdb"
"""Name of the file in the store's home."""
QUERY_SECONDS = 60.0

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    # Sums of floats in one order: the same catalog gives the same digits every time.
    "threads": "1",
}
# MULTI is PIVOT with columns found in the data: DuckDB counts its temporary type as a statement.
_READS = {"SELECT", "EXPLAIN", "MULTI"}
_READ_ONLY = "one statement that reads: SELECT (or FROM, WITH, DESCRIBE, SHOW, PIVOT, EXPLAIN)"
_ROWS_AT_A_TIME = 10_000


def open_catalog(path: Path) -> duckdb.DuckDBPyConnection:
    """Opens the catalog for reading; close it, or use it as a context manager.

    The connection keeps the file it opened even when a new catalog is swapped in.

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
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and rows of one read-only query.

    Args:
      path: The catalog.
      sql: One statement that reads; a closing semicolon is fine.
      limit: Seconds after which the query is stopped.
      parameters: Values of the `$name`s in the statement.
      most_rows: Rows after which no more are read; None: all of them.

    Raises:
      SpecError: no catalog; not exactly one statement; a statement that is not a read; an error in
        the SQL (the message names similar tables or columns); more than `limit` seconds.
    """
    with open_catalog(path) as connection:
        statement = _only_read(connection, sql)
        deadline = time.monotonic() + limit
        try:
            with _interrupted_after(connection, limit):
                found = connection.execute(statement, dict(parameters or {}))
                columns = [str(column[0]) for column in found.description or ()]
                rows: list[tuple[Any, ...]] = []
                while block := found.fetchmany(_room(len(rows), most_rows)):
                    rows += block
                    if time.monotonic() > deadline:
                        raise duckdb.InterruptException
        except duckdb.InterruptException:
            raise SpecError(
                "SQL",
                f"{sql} after {limit:g} s",
                f"a query that takes at most {limit:g} s",
                "narrow it, or add a LIMIT",
            ) from None
        except duckdb.Error as error:
            raise _explained(connection, sql, error) from None
    return columns, rows


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


def _room(num_rows: int, most_rows: int | None) -> int:
    """How many rows to read next."""
    return _ROWS_AT_A_TIME if most_rows is None else min(_ROWS_AT_A_TIME, most_rows - num_rows)


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
