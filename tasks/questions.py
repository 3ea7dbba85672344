"""Query the catalog. The code that writes it is not imported, so that `lce sql` starts fast."""

import os
from pathlib import Path
from typing import Any

from catalog import catalog_path as catalog_path  # flows and lce may not import catalog
from catalog.apart import answer_apart
from catalog.formatting import format_rows, write_parquet
from catalog.limits import bytes_of
from catalog.queries import run_query
from lce_core.environment import for_child


def answer(home: Path, sql: str, form: str, memory: str | None = None) -> str:
    """Run a user's read-only SQL statement in a child process and return the formatted result.

    `form` is "table", "csv" or "json". `memory`, such as 8GB, defaults to half of the free memory,
    at most 4 GB.
    """
    return format_rows(*_answered(home, sql, memory), form)


def answer_in_file(home: Path, sql: str, form: str, file: Path, memory: str | None = None) -> None:
    columns, rows = _answered(home, sql, memory)
    if form == "parquet":
        write_parquet(columns, rows, file)
    else:
        file.write_text(format_rows(columns, rows, form).rstrip("\n") + "\n", encoding="utf-8")


def _answered(home: Path, sql: str, memory: str | None) -> tuple[list[str], list[tuple[Any, ...]]]:
    allowed = None if memory is None else bytes_of(memory, "--memory")
    return answer_apart(catalog_path(home), sql, memory=allowed, environment=for_child(os.environ))


def read(home: Path, sql: str) -> list[tuple[Any, ...]]:
    return run_query(catalog_path(home), sql)[1]
