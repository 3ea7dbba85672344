"""Statistics over the catalog's own tables: paired differences, lengths and rank agreement.

SQL has no bootstrap and no exact test, so Python fills these tables (schema `compared`) from the
samples of done cells while the catalog is built.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from catalog.comparisons.families import paired_differences
from catalog.comparisons.lengths import effective_lengths
from catalog.comparisons.orders import (
    Predicts,
    paper_agreements,
    perplexity_agreements,
    predictions,
)
from catalog.comparisons.pairs import (
    EXPLORATORY,
    PRIMARY,
    SHORT_CONTEXT,
    Key,
    Looks,
    Predicted,
    Prediction,
)
from catalog.comparisons.positions import position_differences, retrieval_by_depth
from catalog.comparisons.samples import Method, read_cells
from catalog.comparisons.seeds import seed_means


def compared_tables(connection: duckdb.DuckDBPyConnection) -> dict[str, pa.Table]:
    """Compute all tables of schema `compared`, by name, from the store's tables."""
    cells = read_cells(connection)
    default = [cell for cell in cells if cell.is_default]
    pairs = list(paired_differences(cells, _predicted(connection), _looks(connection)))
    tables: dict[str, Iterable[dict[str, Any]]] = {
        "effective_length": effective_lengths(default),
        "perplexity_agreement": perplexity_agreements(default),
        "mean_over_seeds": seed_means(default),
        "margin": [margin for row in pairs for margin in row.pop("margins")],
        "paired_difference": pairs,
        "paper_agreement": paper_agreements(connection),
        "prediction": predictions(cells, _predicts(connection)),
        "nll_difference": position_differences(connection),
        "retrieval_by_depth": retrieval_by_depth(connection),
    }
    return {name: pa.Table.from_pylist(list(rows)) for name, rows in tables.items()}


def _predicted(connection: duckdb.DuckDBPyConnection) -> Predicted:
    """Return all expected comparisons; amendments, written after a result, are exploratory."""
    rows = connection.execute(
        "SELECT study, base_model, benchmark, eval_length, metric, method, frozen, other_method,"
        " other_frozen, expected, margin, entry IS NULL, rank, weight, is_registered,"
        " coalesce(min(entry) FILTER (withdrawn_after IS NULL)"
        " OVER (PARTITION BY study, base_model, rank), rank)"
        " FROM expectations WHERE method IS NOT NULL ORDER BY is_registered DESC, rank"
    ).fetchall()
    found: dict[Key, Prediction] = {}
    for row in rows:
        (*where, method, frozen, other, other_frozen, expected, margin), rest = row[:11], row[11:]
        is_default, rank, weight, is_registered, number = rest
        key: Any = (*where, frozenset([(method, frozen), (other, other_frozen)]))
        family = EXPLORATORY
        if is_registered:
            family = SHORT_CONTEXT if is_default else PRIMARY
        one = found.setdefault(key, Prediction(family, rank or 0, number or 0, weight))
        if margin is not None:
            stated = ((method, frozen), expected, margin)
            if is_registered:
                found[key] = replace(one, margins=(*one.margins, stated))
            else:
                found[key] = replace(one, amended=(*one.amended, stated))
    return found


def _predicts(connection: duckdb.DuckDBPyConnection) -> list[Predicts]:
    rows = connection.execute(
        "SELECT study, base_model, benchmark, eval_length, metric, among, is_registered"
        " FROM expectations WHERE expected = 'predicts'"
    ).fetchall()
    variants = connection.execute(
        "SELECT DISTINCT variant_name(method, frozen), method, frozen FROM store.cell"
    ).fetchall()
    of_name = {name: (method, frozen) for name, method, frozen in variants}

    def methods(names: list[str] | None) -> tuple[Method, ...] | None:
        return None if names is None else tuple(of_name.get(one, (one, True)) for one in names)

    return [
        Predicts(study, base_model, benchmark, length, metric, methods(among), is_registered)
        for study, base_model, benchmark, length, metric, among, is_registered in rows
    ]


def _looks(connection: duckdb.DuckDBPyConnection) -> dict[str, Looks]:
    """Return the looks of each study with `looks`, and the comparisons that they settled."""
    studies = connection.execute("SELECT DISTINCT study, looks FROM store.study").fetchall()
    found = {study: Looks(tuple(looks), {}) for study, looks in studies if looks}
    settled: dict[Any, list[int | None]] = {}
    for study, *place, method, frozen, other_method, other_frozen, num_seeds in connection.execute(
        "SELECT study, base_model, benchmark, eval_length, metric, method, frozen, other_method,"
        " other_frozen, settled_seeds FROM expectations"
    ).fetchall():
        key = (study, *place, frozenset([(method, frozen), (other_method, other_frozen)]))
        settled.setdefault(key, []).append(num_seeds)
    for key, numbers in settled.items():
        seeds = [one for one in numbers if one is not None]
        # A pair with several expectations is settled when all of them are.
        if key[0] in found and len(seeds) == len(numbers):
            found[key[0]].settled[key] = max(seeds)
    return found
