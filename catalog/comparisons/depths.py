"""Accuracy and margin of key retrieval by depth and distance, with intervals over documents.

Only benchmarks that compare the right answer with wrong ones, such as `multi_key`, have rows. The
questions about one document are one cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lce_core.statistics.clustered import clustered_mean
from lce_core.statistics.contrasts import FEWEST_CLUSTERS

if TYPE_CHECKING:
    import duckdb

BIN_PERCENT = 20
"""Width of a bin of depths, in per cent of the context."""
_AXES = ("study", "base_model", "method", "frozen", "benchmark", "task", "profile", "eval_length")
_SAMPLES = f"""
    SELECT
        {", ".join(f"c.{axis}" for axis in _AXES)},
        least(floor(s.depth / {BIN_PERCENT}) * {BIN_PERCENT}, {100 - BIN_PERCENT})::BIGINT
            AS depth_from,
        c.seed, s.score, s.margin, (1 - s.depth / 100) * s.num_prompt_tokens AS distance,
        coalesce(s.cluster, c.seed || ' ' || s.sample) AS document
    FROM store.cell c
    JOIN store.sample s ON s.cell = c.cell
    WHERE c.status = 'done' AND s.margin IS NOT NULL AND s.depth IS NOT NULL
    ORDER BY {", ".join(f"c.{axis}" for axis in _AXES)}, depth_from, c.seed, s.sample
"""


def retrieval_by_depth(connection: duckdb.DuckDBPyConnection) -> Iterator[dict[str, Any]]:
    """Yield rows of `compared.retrieval_by_depth`: one per method, task, length and bin of depths.

    Each row pools the done cells of all seeds.
    """
    names = (*_AXES, "depth_from")
    rows = connection.execute(_SAMPLES).fetchall()
    for axes, group in groupby(rows, key=lambda row: row[: len(names)]):
        seeds, scores, margins, distances, documents = zip(
            *(row[len(names) :] for row in group), strict=True
        )
        yield {
            **dict(zip(names, axes, strict=True)),
            "distance": sum(distances) / len(distances),
            **_mean("accuracy", scores, documents),
            **_mean("margin", margins, documents),
            "num_samples": len(scores),
            "num_clusters": len({*documents}),
            "num_seeds": len({*seeds}),
        }


def _mean(name: str, values: Any, documents: Any) -> dict[str, float | None]:
    found = clustered_mean(values, documents)
    known = found.num_clusters >= FEWEST_CLUSTERS
    return {
        name: found.value,
        f"{name}_low": found.low if known else None,
        f"{name}_high": found.high if known else None,
    }
