"""Read the catalog: one read-only query at a time, with limits of time, memory and result size.

The file is opened read-only, without access to other files and with locked settings, so that
untrusted SQL is harmless. Every error in a query becomes a SpecError. Statements written by users
run in a separate process (`catalog.apart`), because DuckDB does not count all memory.
"""

import contextlib
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

from catalog import quoted
from catalog.limits import (
    OFFLINE,
    QUERY_SECONDS,
    Limits,
    limits,
    out_of_memory,
    too_large,
    too_slow,
)
from lce_core.errors import SpecError, StoreError
from lce_core.store.odd_files import require_text

_CONFIG = OFFLINE | {
    "python_enable_replacements": "false",
    # One thread: floats are summed in a fixed order, so results have the same digits every time.
    "threads": "1",
}
_DAMAGE = (
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.IOException,
    duckdb.SerializationException,
)
"""Exceptions that DuckDB raises while it reads a damaged file."""
# MULTI is a PIVOT without listed columns: DuckDB counts its temporary type as a statement.
_READS = {"SELECT", "EXPLAIN", "MULTI"}
_READ_ONLY = "one statement that reads: SELECT (or FROM, WITH, DESCRIBE, SHOW, PIVOT, EXPLAIN)"
_ROWS_AT_A_TIME = 10_000
_FIRST_ROWS = 100
_BYTES_AT_A_TIME = 4 << 20
_CONTAINERS = (list, tuple, dict)


def open_catalog(path: Path, within: Limits | None = None) -> duckdb.DuckDBPyConnection:
    """Return a connection that reads only the catalog. Close it, or use it in a `with` block.

    The connection keeps reading the same file even when a new catalog replaces it.
    """
    connection = _attached(path, _CONFIG)
    # DuckDB deletes the folder when the connection closes.
    spill = Path(tempfile.gettempdir()) / f"lce-sql-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    (within or limits()).apply(connection, spill)
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def connect(path: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection for the user's own SQL: files, settings and data frames are allowed.

    Only the catalog is read-only. Names in a statement can be data frames of any calling function.
    """
    return _attached(path, {"python_scan_all_frames": "true"})


def _attached(path: Path, config: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    expected = "the catalog, a DuckDB file built from the store"
    remedy = "build it with `lce rebuild catalog`, or run a study with `lce run STUDY`"
    if not path.is_file():
        raise SpecError(path, "no such file", expected, remedy)
    # Attach the file to a separate instance. A second `duckdb.connect(path)` in one process would
    # return the open instance, and with it the file from before the last swap.
    connection = duckdb.connect(":memory:", config=dict(config))
    try:
        connection.execute(f"ATTACH {quoted(path)} AS catalog (READ_ONLY)")
    except duckdb.Error as error:
        connection.close()
        raise SpecError(path, error, expected, remedy) from None
    connection.execute("USE catalog")
    return connection


def run_query(
    path: Path, sql: str, parameters: Mapping[str, Any] | None = None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    found = read_blocks(path, sql, QUERY_SECONDS, parameters=parameters, within=limits())
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
    """Yield the column names of one read-only query, then its rows in blocks of about 4 MB.

    `limit` is in seconds. Raises SpecError without a catalog, for a statement that does not only
    read or has an error, and beyond a limit; StoreError if the catalog is damaged.
    """
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
            message = str(error).partition("\n")[0] or "no memory for the result"
            raise out_of_memory(sql, message, within) from None
        except duckdb.Error as error:
            damage = as_store_error(error, path)
            raise _explained(connection, sql, error) if damage is error else damage from None


def as_store_error(error: Exception, path: Path) -> Exception:
    """Return a StoreError if a DuckDB error means a damaged file; otherwise the error itself."""
    # DuckDB has no class for wrong checksums.
    if not isinstance(error, _DAMAGE) and "Corrupt database file" not in str(error):
        return error
    return StoreError(
        path,
        str(error).splitlines()[0],
        "an undamaged catalog",
        "rebuild it with `lce rebuild catalog`",
    )


def _room(num_rows: int, size: int, most_rows: int | None) -> int:
    """Return how many rows to fetch next: about 4 MB, judged by the mean size of previous rows.

    At most 10,000 rows, and never more than `most_rows` in total.
    """
    room = _FIRST_ROWS if not num_rows else max(1, _BYTES_AT_A_TIME * num_rows // max(1, size))
    room = min(room, _ROWS_AT_A_TIME)
    return room if most_rows is None else min(room, most_rows - num_rows)


def _size(value: Any) -> int:
    """Return the memory that a row or value takes as Python objects, in bytes."""
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(_size(key) + _size(item) for key, item in value.items())
    if not isinstance(value, list | tuple):
        return size
    return size + sum(_size(v) if isinstance(v, _CONTAINERS) else sys.getsizeof(v) for v in value)


def _only_read(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    require_text(sql, "SQL")
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise _explained(connection, sql, error) from None
    if len(statements) != 1:
        raise SpecError(
            "SQL",
            f"{len(statements)} statements in {sql!r}",
            _READ_ONLY,
            "run one query at a time",
        )
    try:
        kind = statements[0].type.name
    except ValueError:  # a statement type that the Python enumeration lacks
        kind = "unknown statement"
    if kind not in _READS:
        raise SpecError(
            "SQL",
            f"{sql} ({kind})",
            _READ_ONLY,
            "write a query that only reads; to change results, change the study and run it",
        )
    return statements[0]


def _explained(connection: duckdb.DuckDBPyConnection, sql: str, error: duckdb.Error) -> SpecError:
    message = str(error)
    if isinstance(error, duckdb.PermissionException) or "read-only mode" in message:
        return SpecError(
            "SQL",
            f"{sql} ({message})",
            _READ_ONLY,
            "remove files, settings and other databases: a query can read only the catalog",
        )
    views = None
    with contextlib.suppress(duckdb.Error):  # the error may have invalidated the connection
        views = connection.execute(
            "SELECT string_agg(view_name, ', ' ORDER BY view_name) FROM duckdb_views()"
            " WHERE schema_name = 'main' AND NOT internal"
        ).fetchone()
    return SpecError(
        "SQL",
        f"{sql} ({message})",
        f"a query over the views {views[0] if views else ''}",
        "correct the query; `DESCRIBE scores` lists the columns of a view",
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
