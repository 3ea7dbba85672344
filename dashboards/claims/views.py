"""The rows of the catalog that claims rest on, and what each row is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashboards.claims import wording
from lce_core.errors import SpecError, did_you_mean

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]
Method = tuple[str, bool]

BASE: Method = ("none", True)
CONTROL: Method = ("none", False)
"""The base model after the training that tuned methods had."""
PERPLEXITY = "perplexity"
_QUERIES = {
    "studies": "FROM studies WHERE study = $study",
    "pairs": "FROM paired_difference WHERE study = $study",
    "lengths": "FROM effective_length WHERE study = $study",
    "orders": "FROM perplexity_agreement WHERE study = $study",
}


@dataclass(frozen=True)
class Views:
    """Rows of one study."""

    studies: list[Row]
    pairs: list[Row]
    lengths: list[Row]
    orders: list[Row]

    def trained(self, base_model: str) -> int | None:
        """Tokens of the base model's trained context."""
        (length,) = (s["trained_context"] for s in self.studies if s["base_model"] == base_model)
        return None if length is None else int(length)

    def target(self, base_model: str) -> int:
        """Tokens that the study's methods extend to."""
        (length,) = (s["target_context"] for s in self.studies if s["base_model"] == base_model)
        return int(length)


def read_views(connection: duckdb.DuckDBPyConnection, study: str) -> Views:
    """The views that claims rest on.

    Raises:
      SpecError: the catalog does not hold the study, or was made by an earlier version.
    """
    import duckdb

    known = [row["study"] for row in _rows(connection, "SELECT DISTINCT study FROM studies", {})]
    if study not in known:
        raise SpecError("study", repr(study), "a study of the catalog", did_you_mean(study, known))
    try:
        return Views(
            **{name: _rows(connection, sql, {"study": study}) for name, sql in _QUERIES.items()}
        )
    except duckdb.CatalogException as error:
        raise SpecError(
            "catalog",
            str(error).splitlines()[0],
            "a catalog with comparisons",
            "run `lce rebuild catalog`: an earlier version made this one",
        ) from None


def first(row: Row) -> Method:
    """The method of whose score `value` is."""
    return row["method"], row["frozen"]


def other(row: Row) -> Method:
    """Whom it is compared with."""
    return row["other_method"], row["other_frozen"]


def other_labels(rows: Sequence[Row]) -> list[str]:
    """Those whom the first is compared with."""
    return [wording.label(*other(row)) for row in rows]


def with_more_tasks(rows: Sequence[Row], column: str) -> set[str]:
    """Benchmarks that have more than one choice of tasks in that column."""
    tasks: dict[str, set[str]] = {}
    for row in rows:
        tasks.setdefault(row["benchmark"], set()).add(row[column])
    return {name for name, found in tasks.items() if len(found) > 1}


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, values: Row) -> list[Row]:
    found = connection.execute(sql, values)
    columns = [column[0] for column in found.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
