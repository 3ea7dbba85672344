"""Query the catalog. The code that writes it is not imported, so that `lce sql` starts fast."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from catalog.apart import answer_apart
from catalog.formatting import format_rows, write_parquet
from catalog.limits import bytes_of
from catalog.queries import CATALOG, run_query
from lce_core.environment import for_child


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
    return format_rows(*_answered(home, sql, memory), form)


def answer_in_file(home: Path, sql: str, form: str, file: Path, memory: str | None = None) -> None:
    """Run a user's read-only SQL statement and write the result to a file.

    Args:
      home: the store's folder.
      sql: the statement.
      form: output format: "table", "csv", "json" or "parquet".
      file: file to write; an existing file is overwritten.
      memory: see `answer`.

    Raises:
      SpecError: as for `answer`.
    """
    columns, rows = _answered(home, sql, memory)
    if form == "parquet":
        write_parquet(columns, rows, file)
    else:
        file.write_text(format_rows(columns, rows, form).rstrip("\n") + "\n", encoding="utf-8")


def _answered(home: Path, sql: str, memory: str | None) -> tuple[list[str], list[tuple[Any, ...]]]:
    allowed = None if memory is None else bytes_of(memory, "--memory")
    return answer_apart(catalog_path(home), sql, memory=allowed, environment=for_child(os.environ))


def read(home: Path, sql: str) -> list[tuple[Any, ...]]:
    """Run one of the project's own SQL statements in this process and return its rows."""
    return run_query(catalog_path(home), sql)[1]
