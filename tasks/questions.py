"""Questions asked of the catalog, without what writes it: so `lce sql` answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from catalog.apart import answer_apart
from catalog.formatting import format_rows
from catalog.limits import bytes_of
from catalog.queries import CATALOG, run_query
from tasks.own_code import of_own_code


def catalog_path(home: Path) -> Path:
    """The file of the results catalog."""
    return home / CATALOG


def answer(home: Path, sql: str, form: str, memory: str | None = None) -> str:
    """The answer to a user's reading statement, as text in form "table", "csv" or "json".

    Args:
      home: The store's folder.
      sql: The statement.
      form: Of the text.
      memory: What the statement may take, such as 8GB; None: half of what is free, at most 4 GB.

    Raises:
      SpecError: as `catalog.queries.run_query`; there is no such form; `memory` is no size.
    """
    allowed = None if memory is None else bytes_of(memory, "--memory")
    columns, rows = answer_apart(catalog_path(home), sql, memory=allowed, environment=of_own_code())
    return format_rows(columns, rows, form)


def read(home: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a reading SQL statement over the catalog."""
    return run_query(catalog_path(home), sql)[1]
