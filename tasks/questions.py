"""Questions asked of the catalog, without what writes it: so `lce sql` answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from catalog.formatting import format_rows
from catalog.queries import CATALOG, run_query


def catalog_path(home: Path) -> Path:
    """The file of the results catalog."""
    return home / CATALOG


def answer(home: Path, sql: str, form: str) -> str:
    """The answer to a reading SQL statement, as text in form "table", "csv" or "json"."""
    columns, rows = run_query(catalog_path(home), sql)
    return format_rows(columns, rows, form)


def read(home: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a reading SQL statement over the catalog."""
    return run_query(catalog_path(home), sql)[1]
