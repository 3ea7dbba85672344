"""Load everything that a report shows about one study; `report.sql` describes the rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from catalog import grouped as grouped
from catalog.queries import as_store_error, open_catalog
from lce_core.errors import SpecError, did_you_mean

Row = dict[str, Any]


@dataclass(frozen=True)
class Contents:
    """Rows of one study by their query in `report.sql`: `contents.scores` are those of `scores`."""

    study: str
    rows: Mapping[str, list[Row]]

    def __getattr__(self, query: str) -> list[Row]:
        return self.rows[query]

    def of(self, base_model: str) -> Contents:
        """Return only the rows of one base model; keep all rows that have no column base_model."""
        kept = {
            query: [row for row in rows if row.get("base_model", base_model) == base_model]
            for query, rows in self.rows.items()
        }
        return Contents(self.study, kept)


def read_contents(catalog: Path, study: str) -> Contents:
    with opened(catalog) as connection:
        return Contents(study, rows_of(connection, study, REPORT))


@contextmanager
def opened(catalog: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the catalog for reading; an error of DuckDB in the block may be a StoreError."""
    try:
        with open_catalog(catalog) as connection:
            yield connection
    except duckdb.Error as error:
        found = as_store_error(error, catalog)
        if found is error:
            raise
        raise found from None


def queries_of(file: Path) -> dict[str, str]:
    """Return the queries of an SQL file by name. A line `-- name: NAME` precedes each query."""
    _, *parts = re.split(r"^-- name: (\w+)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


REPORT = queries_of(Path(__file__).with_name("report.sql"))


def rows_of(
    connection: duckdb.DuckDBPyConnection, study: str, queries: Mapping[str, str]
) -> dict[str, list[Row]]:
    """Run each query, which has the parameter $study, and return its rows as dicts by its name."""
    known = [row["study"] for row in read(connection, "SELECT DISTINCT study FROM studies")]
    if study not in known:
        raise SpecError("study", repr(study), "a study of the catalog", did_you_mean(study, known))
    return {name: read(connection, sql, study=study) for name, sql in queries.items()}


def read(connection: duckdb.DuckDBPyConnection, sql: str, **parameters: object) -> list[Row]:
    try:
        answer = connection.execute(sql, parameters)
    except (duckdb.CatalogException, duckdb.BinderException) as error:
        raise SpecError(
            "catalog",
            str(error).splitlines()[0],
            "a catalog of this version of lce",
            "run `lce rebuild catalog`",
        ) from None
    columns = [column[0] for column in answer.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in answer.fetchall()]


def select(rows: Sequence[Row], **values: object) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in values.items())]
