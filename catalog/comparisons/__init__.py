"""What the catalog computes over its own tables: differences, lengths and orders, with uncertainty.

SQL has no bootstrap and no exact test, so these tables (schema `compared`) are filled by Python as
the catalog is built, from the samples of done cells. The digest of what studies computed leaves
them out.

  samples            the scores of cells as arrays, aligned by prompt
  pairs              every method against the others on the same prompts
  lengths            how long a context each method uses
  orders             perplexity against downstream scores
  seeds              means for seeds and prompts that were not run
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from catalog.comparisons.lengths import effective_lengths
from catalog.comparisons.orders import perplexity_agreements
from catalog.comparisons.pairs import paired_differences
from catalog.comparisons.samples import Cell, read_cells
from catalog.comparisons.seeds import seed_means

if TYPE_CHECKING:
    import duckdb

_TABLES: dict[str, Callable[[list[Cell]], Iterator[dict[str, Any]]]] = {
    "paired_difference": paired_differences,
    "effective_length": effective_lengths,
    "perplexity_agreement": perplexity_agreements,
    "mean_over_seeds": seed_means,
}


def fill_comparisons(connection: duckdb.DuckDBPyConnection) -> None:
    """Fills the tables of `sql/comparisons.sql` from those of the store."""
    import pyarrow as pa

    cells = read_cells(connection)
    for name, rows_of in _TABLES.items():
        if rows := list(rows_of(cells)):
            connection.register("rows_to_insert", pa.Table.from_pylist(rows))
            connection.execute(f"INSERT INTO compared.{name} BY NAME FROM rows_to_insert")
            connection.unregister("rows_to_insert")
