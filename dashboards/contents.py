"""Load everything that a report shows about one study, with one query per table.

The catalog has already computed means, ranges over seeds and best values; nothing is computed here.
The query of each field of `Contents` is the file of that name in `sql/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """Catalog rows of one study. Each field has the columns of its query in `sql/`."""

    study: str
    studies: list[Row]
    """One row per base model."""
    overview: list[Row]
    """One row per variant (method, frozen or tuned), in the study's order."""
    registrations: list[Row]
    """Versions of the hypothesis and the expectations, oldest first."""
    expectations: list[Row]
    """Comparisons that the study file predicts, with their outcomes."""
    short_context: list[Row]
    """Comparisons with the base model within its trained context; for perplexities, the relative
    difference."""
    settled: list[Row]
    """Variants whose comparisons looks have all settled, by the number of seeds at that time."""
    families: list[Row]
    """One row per variant, with its method family."""
    scores: list[Row]
    """Default metric by task, length and method, mean over seeds."""
    sample_counts: list[Row]
    """Number of prompts or text windows behind each score of one seed, by task and length."""
    standing: list[Row]
    """Share of comparisons with other methods that each method wins beyond the trained context."""
    nll_differences: list[Row]
    """Difference of each method's NLL (negative log-likelihood) from the base model's, by band of
    positions."""
    curves: list[Row]
    """Negative log-likelihood by position, averaged into 32 bins."""
    benchmarks: list[Row]
    """Default metric by benchmark, length and method, mean over tasks and seeds."""
    intervals: list[Row]
    """Mean of each task over seeds, with its 95 % interval for other seeds and prompts."""
    differences: list[Row]
    """Scores that are significantly better or worse than the base model's on the same prompts."""
    pairs: list[Row]
    """Comparisons of all pairs of methods, by benchmark and length."""
    duplicates: list[Row]
    """Pairs of variants with the same score on every document of a text, and on every prompt."""
    depths: list[Row]
    """Share of needles that each method found, by length and depth."""
    shots: list[Row]
    """Many-shot accuracy by number of examples in the prompt, with intervals."""
    trainings: list[Row]
    """Training loss by number of tokens, averaged into 32 bins, mean over seeds."""
    training_settings: list[Row]
    """Text, steps and optimiser of the training runs, with the methods that used them."""
    trials: list[Row]
    """Validation loss of each tuned method with each value of the study's `tune`."""
    own_best: list[Row]
    """Scores of each tuned method at the common and at its own best value of the tuned setting."""
    papers: list[Row]
    """The study's values next to those printed in papers."""
    agreement: list[Row]
    """Rank correlation between each paper's order of methods and the study's."""
    violations: list[Row]
    """Factors other than the method (kernel, hardware, ...) that differ between compared cells."""
    costs: list[Row]
    """Seconds, tokens and FLOPs of each method."""
    missing: list[Row]
    """Cells without a result, grouped by reason."""
    environments: list[Row]
    """Machines, software and commits with which the done cells were computed."""
    described_methods: list[Row]
    """Summary and source of each method, by its label in the study."""
    described_benchmarks: list[Row]
    """Summary and source of each benchmark, and what its profile evaluates."""
    sample_answers: list[Row]
    """Sample answers: at most five per benchmark, at its longest length within the target, one per
    method and outcome."""
    run: list[Row]
    """One row: numbers of cells and seeds, profiles, and times of the first and last result."""

    def of(self, base_model: str) -> Contents:
        """Return only the rows of one base model; keep all rows that have no column base_model."""
        kept = {
            field.name: [row for row in rows if row.get("base_model", base_model) == base_model]
            for field in fields(self)
            if isinstance(rows := getattr(self, field.name), list)
        }
        return Contents(self.study, **kept)


def read_contents(catalog: Path, study: str) -> Contents:
    """Read one study from the catalog.

    Raises:
      SpecError: if the catalog or the study does not exist.
    """
    names = [field.name for field in fields(Contents) if field.name != "study"]
    queries = {name: (_SQL / f"{name}.sql").read_text(encoding="utf-8") for name in names}
    with open_catalog(catalog) as connection:
        return Contents(study, **rows_of(connection, study, queries))


def rows_of(
    connection: duckdb.DuckDBPyConnection, study: str, queries: Mapping[str, str]
) -> dict[str, list[Row]]:
    """Run each query for a study and return its rows as dicts, by the query's name.

    Args:
      connection: the catalog, opened by `catalog.queries.open_catalog`.
      study: name of a study in the catalog.
      queries: SQL with the parameter $study, by name.

    Raises:
      SpecError: if the catalog lacks the study.
    """
    known = [row["study"] for row in read(connection, "SELECT DISTINCT study FROM studies")]
    if study not in known:
        raise SpecError("study", repr(study), "a study of the catalog", did_you_mean(study, known))
    return {name: read(connection, sql, study=study) for name, sql in queries.items()}


def read(connection: duckdb.DuckDBPyConnection, sql: str, **parameters: object) -> list[Row]:
    """Run a query and return its rows as dicts.

    Raises:
      SpecError: if the catalog lacks a table or column of the query.
    """
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
    """Return the rows whose columns have the given values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]
