"""Load the catalog rows that claims are based on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboards.contents import Row, rows_of
from lce_core.study.variants import CONTROL

if TYPE_CHECKING:
    import duckdb

Method = tuple[str, bool]

BASE: Method = (CONTROL, True)
"""Method label and frozen flag of the unmodified base model."""
PERPLEXITY = "perplexity"
_QUERIES = {
    "studies": "FROM studies WHERE study = $study",
    "pairs": "FROM paired_difference WHERE study = $study",
    "lengths": "FROM effective_length WHERE study = $study AND rule = 'kept'",
    "orders": "FROM perplexity_agreement WHERE study = $study",
    "kinds": "SELECT DISTINCT benchmark, kind FROM cells WHERE study = $study",
}


@dataclass(frozen=True)
class Views:
    """Rows of one study in each view that claims need."""

    studies: list[Row]
    pairs: list[Row]
    lengths: list[Row]
    orders: list[Row]
    kinds: list[Row]
    """Rows that state the ability each benchmark measures (columns `benchmark`, `kind`)."""

    def trained(self, base_model: str) -> int | None:
        """Return the base model's trained context in tokens; None if unknown."""
        (length,) = (s["trained_context"] for s in self.studies if s["base_model"] == base_model)
        return None if length is None else int(length)


def read_views(connection: duckdb.DuckDBPyConnection, study: str) -> Views:
    """Read the views that claims are based on.

    Raises:
      SpecError: the catalog lacks the study.
    """
    return Views(**rows_of(connection, study, _QUERIES))


def first(row: Row) -> Method:
    """Return the first method of a comparison, whose score is the column `value`."""
    return row["method"], row["frozen"]


def other(row: Row) -> Method:
    """Return the method that the first one is compared with."""
    return row["other_method"], row["other_frozen"]


def with_more_tasks(rows: Sequence[Row], column: str) -> set[str]:
    """Return the benchmarks with more than one distinct task or task set in the column."""
    tasks: dict[str, set[str]] = {}
    for row in rows:
        tasks.setdefault(row["benchmark"], set()).add(row[column])
    return {name for name, found in tasks.items() if len(found) > 1}
