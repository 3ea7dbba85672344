"""Losses and key retrieval by position in the context.

`position_differences` compares each method's NLL (nats per token) with the frozen base model's. The
losses of two methods on the same text rise and fall together. The paired difference in a bin of
positions therefore has a much narrower interval than the difference of two separate means.
Positions are grouped into bands that start at 0, 1, 2, 4, ... times the trained context. Intervals
are bootstrapped over bins of positions: they cover the tokens that were read, not other texts.

`retrieval_by_depth` has accuracy and margin by depth and distance, with intervals over documents,
for benchmarks that compare the right answer with wrong ones, such as `multi_key`. The questions
about one document are one cluster.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import duckdb

from catalog.comparisons.samples import BASE, Method
from lce_core.statistics.clustered import clustered_mean
from lce_core.statistics.contrasts import FEWEST_CLUSTERS
from lce_core.statistics.estimates import bootstrap_mean

Band = tuple[int, int]
"""A half-open range of positions in tokens: the first is included, the second is not."""
_TEXT = ("study", "base_model", "benchmark", "task", "eval_length")
_BINS = f"""
    SELECT {", ".join(_TEXT)}, method, frozen, position_bin, nll, trained_context
    FROM nll_by_position
    JOIN studies USING (study, base_model)
    WHERE nll IS NOT NULL
"""
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


def position_differences(connection: duckdb.DuckDBPyConnection) -> Iterator[dict[str, Any]]:
    """Yield rows of `compared.nll_difference`: one per text, method and band of positions."""
    texts: dict[tuple[Any, ...], dict[Method, dict[int, float]]] = {}
    trained: dict[tuple[Any, ...], int | None] = {}
    for *axes, method, frozen, position, nll, context in connection.execute(_BINS).fetchall():
        text = tuple(axes)
        texts.setdefault(text, {}).setdefault((method, frozen), {})[position] = nll
        trained[text] = context
    for text, by_method in texts.items():
        found = bands(trained[text], text[-1])
        for (method, frozen), row in differences(by_method, found):
            yield dict(zip(_TEXT, text, strict=True)) | {"method": method, "frozen": frozen} | row


def bands(trained: int | None, length: int) -> list[Band]:
    """Return the bands of positions: [0, trained), [trained, 2 * trained), ... up to `length`.

    Without a known trained context there is one band.
    """
    edges = [0]
    while edges[-1] < length:
        edges.append(min(2 * edges[-1] or trained or length, length))
    return list(itertools.pairwise(edges))


def differences(
    by_method: dict[Method, dict[int, float]], found: list[Band]
) -> Iterator[tuple[Method, dict[str, Any]]]:
    """Compare every other method with the base model, bin by bin; yield one row per band.

    `by_method` maps the first position of each bin to its mean NLL; a bin belongs to the band of
    this position. A band in which no bin has both values has NULL as its difference. Methods
    without a common bin have no rows.
    """
    base = by_method.get(BASE, {})
    for method, bins in by_method.items():
        gaps = {at: nll - base[at] for at, nll in bins.items() if at in base}
        if method == BASE or not gaps:
            continue
        for start, end in found:
            inside = [gap for at, gap in gaps.items() if start <= at < end]
            mean = bootstrap_mean(inside) if inside else None
            yield (
                method,
                {
                    "band_start": start,
                    "band_end": end,
                    "difference": mean and mean.value,
                    "ci_low": mean and mean.low,
                    "ci_high": mean and mean.high,
                    "num_bins": len(inside),
                },
            )


def retrieval_by_depth(connection: duckdb.DuckDBPyConnection) -> Iterator[dict[str, Any]]:
    """Yield rows of `compared.retrieval_by_depth`: one per method, task, length and bin of depths.

    Each row pools the done cells of all seeds.
    """
    names = (*_AXES, "depth_from")
    rows = connection.execute(_SAMPLES).fetchall()
    for axes, group in itertools.groupby(rows, key=lambda row: row[: len(names)]):
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
