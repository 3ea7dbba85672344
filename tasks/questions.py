"""Query the catalog. The code that writes it is not imported, so that `lce sql` starts fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from catalog.apart import answer_apart
from catalog.formatting import format_rows
from catalog.limits import bytes_of
from catalog.queries import CATALOG, run_query
from tasks.own_code import child_environment


def catalog_path(home: Path) -> Path:
    """Return the path of the results catalog."""
    return home / CATALOG


def answer(home: Path, sql: str, form: str, memory: str | None = None) -> str:
    """Run a user's read-only SQL statement in a child process and return the formatted result.

    Args:
      home: the store's folder.
      sql: the statement.
      form: output format: "table", "csv" or "json".
      memory: memory limit of the statement, such as 8GB; None for half of the free memory, at most
        4 GB.

    Raises:
      SpecError: if `form` is unknown, `memory` is not a size, or `run_query` rejects the statement.
    """
    allowed = None if memory is None else bytes_of(memory, "--memory")
    columns, rows = answer_apart(
        catalog_path(home), sql, memory=allowed, environment=child_environment()
    )
    return format_rows(columns, rows, form)


def read(home: Path, sql: str) -> list[tuple[Any, ...]]:
    """Run one of the project's own SQL statements in this process and return its rows."""
    return run_query(catalog_path(home), sql)[1]
