"""What the report shows of one study, read from the catalog in a handful of queries.

Nothing is computed here: means, ranges over seeds and what is best are the catalog's. Each file of
`sql/` is the query of the field of its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import duckdb

from catalog.queries import open_catalog
from lce_core.errors import SpecError, did_you_mean

Row = dict[str, Any]

_SQL = Path(__file__).parent / "sql"


@dataclass(frozen=True)
class Contents:
    """Rows of the catalog for one study; the columns are those of the views."""

    study: str
    studies: list[Row]
    """One row per base model."""
    overview: list[Row]
    """One row per method, in the study's order."""
    families: list[Row]
    """What each method changes."""
    scores: list[Row]
    """Default metrics of tasks against length, mean over seeds."""
    standing: list[Row]
    """Share of its comparisons beyond the trained context that each method wins."""
    positions: list[Row]
    """Negative log-likelihood by position, at the longest length."""
    curves: list[Row]
    """The same in 32 bins."""
    benchmarks: list[Row]
    """Benchmarks against length, mean over tasks and seeds."""
    intervals: list[Row]
    """Default metric of each done cell, with its interval over samples."""
    differences: list[Row]
    """Where a method surely differs from the base model on the same prompts."""
    depths: list[Row]
    """Needles found, by length and depth."""
    shots: list[Row]
    """Many-shot accuracy against examples, with intervals."""
    trainings: list[Row]
    """Training loss against tokens, in 32 bins, mean over seeds."""
    papers: list[Row]
    """Our values beside those that papers print."""
    agreement: list[Row]
    """How far the papers' order of methods is ours."""
    violations: list[Row]
    """What differs between compared cells and is not the method."""
    costs: list[Row]
    """Seconds, tokens and FLOPs of each method."""
    missing: list[Row]
    """Cells without a result, those with the same reason together."""
    environments: list[Row]
    """Environments of the done cells."""
    run: list[Row]
    """One row: what was run, and when."""

    def of(self, base_model: str) -> Contents:
        """The rows of one base model, and those of the study as a whole."""
        kept = {
            field.name: [row for row in rows if row.get("base_model", base_model) == base_model]
            for field in fields(self)
            if isinstance(rows := getattr(self, field.name), list)
        }
        return Contents(self.study, **kept)


def read_contents(catalog: Path, study: str) -> Contents:
    """Reads one study.

    Raises:
      SpecError: there is no catalog, it does not hold the study, or an earlier version made it.
    """
    with open_catalog(catalog) as connection:
        known = [row["study"] for row in _rows(connection, "SELECT DISTINCT study FROM studies")]
        if study not in known:
            raise SpecError(
                "study", repr(study), f"a study of {catalog}", did_you_mean(study, known)
            )
        try:
            found = {
                field.name: _rows(connection, _query(field.name), study)
                for field in fields(Contents)
                if field.name != "study"
            }
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            raise SpecError(
                catalog,
                str(error).splitlines()[0],
                "a catalog with all that a report shows",
                "run `lce rebuild catalog`: an earlier version made this one",
            ) from None
    return Contents(study, **found)


def select(rows: Sequence[Row], **values: object) -> list[Row]:
    """The rows whose columns have these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def _query(name: str) -> str:
    return (_SQL / f"{name}.sql").read_text(encoding="utf-8")


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, study: str | None = None) -> list[Row]:
    found = connection.execute(sql, {} if study is None else {"study": study})
    columns = [column[0] for column in found.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
