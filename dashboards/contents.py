"""What the report shows of one study, read from the catalog in a handful of queries.

Nothing is computed here: means, ranges over seeds and what is best are the catalog's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from catalog.queries import open_catalog
from lce_core.errors import SpecError, did_you_mean

Row = dict[str, Any]

_QUERIES = {
    "studies": "FROM studies WHERE study = $study",
    "overview": "FROM overview WHERE study = $study",
    "scores": "FROM score_by_length WHERE study = $study",
    "positions": """
        FROM nll_by_position n WHERE study = $study AND eval_length = (
            SELECT max(eval_length) FROM nll_by_position m
            WHERE m.study = n.study AND m.base_model = n.base_model
                AND m.benchmark = n.benchmark AND m.task = n.task
        )""",
    "benchmarks": "FROM benchmark_by_length WHERE study = $study",
    "intervals": "FROM scores WHERE study = $study AND is_default",
    "missing": """
        SELECT status, base_model, method, frozen, reason,
            string_agg(DISTINCT benchmark, ', ' ORDER BY benchmark) AS benchmarks,
            list(DISTINCT eval_length ORDER BY eval_length) AS eval_lengths,
            list(DISTINCT seed ORDER BY seed) AS seeds,
            count(*) AS cells
        FROM missing_cells WHERE study = $study
        GROUP BY status, base_model, method, frozen, reason
        ORDER BY status, base_model, method, frozen, reason""",
    "environments": """
        SELECT e.* EXCLUDE (num_artifacts, first_used, last_used),
            count(DISTINCT a.artifact) AS num_artifacts,
            min(a.started_at) AS first_used,
            max(a.created_at) AS last_used
        FROM environments e
        JOIN artifacts a USING (environment)
        JOIN cells c ON c.cell = a.artifact
        WHERE c.study = $study
        GROUP BY ALL
        ORDER BY first_used, environment""",
    "run": """
        SELECT count(*) AS cells,
            count(*) FILTER (status = 'done') AS done,
            count(DISTINCT seed) AS seeds,
            string_agg(DISTINCT profile, ', ' ORDER BY profile) AS profiles,
            string_agg(DISTINCT kernel, ', ' ORDER BY kernel) AS kernels,
            min(created_at) AS first,
            max(created_at) AS last
        FROM cells LEFT JOIN (
            SELECT DISTINCT study, cell, profile, kernel, created_at FROM scores
        ) USING (study, cell)
        WHERE study = $study""",
}


@dataclass(frozen=True)
class Contents:
    """Rows of the catalog for one study; the columns are those of the views."""

    study: str
    studies: list[Row]
    """One row per base model."""
    overview: list[Row]
    scores: list[Row]
    """Default metrics of tasks against length, mean over seeds."""
    positions: list[Row]
    """Negative log-likelihood by position, at the longest length."""
    benchmarks: list[Row]
    """Benchmarks against length, mean over tasks and seeds."""
    intervals: list[Row]
    """Default metric of each done cell, with its interval over samples."""
    missing: list[Row]
    """Cells without a result, those with the same reason together."""
    environments: list[Row]
    """Environments of the done cells."""
    run: list[Row]
    """One row: what was run, and when."""


def read_contents(catalog: Path, study: str) -> Contents:
    """Reads one study.

    Raises:
      SpecError: there is no catalog, or it does not hold the study.
    """
    with open_catalog(catalog) as connection:
        known = [row["study"] for row in _rows(connection, "SELECT DISTINCT study FROM studies")]
        if study not in known:
            raise SpecError(
                "study", repr(study), f"a study of {catalog}", did_you_mean(study, known)
            )
        found = {name: _rows(connection, sql, study) for name, sql in _QUERIES.items()}
    return Contents(study, **found)


def select(rows: Sequence[Row], **values: object) -> list[Row]:
    """The rows whose columns have these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, study: str | None = None) -> list[Row]:
    found = connection.execute(sql, {} if study is None else {"study": study})
    columns = [column[0] for column in found.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
