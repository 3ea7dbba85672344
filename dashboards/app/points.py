"""Aggregate cells into chart points: means over all cells with equal values of the dimensions.

A mean is drawn only if all its planned cells are done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.contents import Row, grouped
from dashboards.families import Variant

DIMENSIONS = {
    "variant": "method",
    "eval_length": "length (tokens)",
    "family": "family",
    "benchmark": "benchmark",
    "task": "task",
    "seed": "seed",
    "train_length": "training length (tokens)",
}
COSTS = {"seconds": "seconds per cell", "tokens": "tokens per cell", "flops": "FLOPs per cell"}
_PARTS = ("benchmark", "task", "seed", "eval_length")


@dataclass(frozen=True)
class Measure:
    """A quantity to draw: a metric of a benchmark, or a cost (`benchmark` is None)."""

    name: str
    benchmark: str | None = None
    column: str = "value"
    unit: str | None = None
    higher_is_better: bool | None = None

    @property
    def is_logarithmic(self) -> bool:
        return self.unit == "perplexity" or self.benchmark is None


@dataclass(frozen=True)
class Points:
    """The points of a chart, and the points that are left out because cells are unfinished."""

    drawn: list[dict[str, Any]]
    """The values of the dimensions, `y`, `num_cells`, and `x` if that axis is a measure."""
    gaps: list[dict[str, Any]]
    uneven: bool


def measures(rows: Sequence[Row]) -> list[Measure]:
    found: dict[tuple[str, str], tuple[bool, Measure]] = {}
    for row in rows:
        if (metric := row["metric"]) is not None:
            # The metric of the benchmark `perplexity` has the same name.
            name = ": ".join(dict.fromkeys((row["benchmark"], metric))).replace("_", " ")
            made = Measure(name, row["benchmark"], metric, row["unit"], row["higher_is_better"])
            key = (row["benchmark"], metric)
            found[key] = (row["is_default"] or found.get(key, (False,))[0], made)
    scores = sorted(found.values(), key=lambda one: not one[0])
    costs = [Measure(name, None, column) for column, name in COSTS.items()]
    return [*(made for _, made in scores), *costs]


def points(rows: Sequence[Row], by: Sequence[str], y: Measure, x: Measure | None = None) -> Points:
    """Return one point, a mean over cells, for each combination of values of dimensions."""
    # A cost drawn against a score covers only the cells of that score's benchmark.
    shared = {one.benchmark for one in (x, y) if one and one.benchmark}
    own = {
        measure: [row for row in rows if len(shared) != 1 or row["benchmark"] in shared]
        for measure in (x, y)
        if measure
    }
    ys = _means(own[y], by, y)
    xs = _means(own[x], by, x) if x else {}
    drawn, parts, gaps = [], set(), []
    for key, (mean, num_cells, own_parts) in ys.items():
        point = dict(zip(by, key, strict=True))
        across, *_ = xs.get(key, (None,))
        if mean is None or (x and across is None):
            gaps.append(point)
            continue
        drawn.append({**point, "y": mean, "num_cells": num_cells, **({"x": across} if x else {})})
        parts.add(own_parts)
    return Points(drawn, gaps, len(parts) > 1)


_Mean = tuple[float | None, int, frozenset[tuple[Any, ...]]]
"""Mean of cells, their number, and their benchmarks, tasks, seeds and lengths."""


def _means(
    rows: Sequence[Row], by: Sequence[str], measure: Measure
) -> dict[tuple[Any, ...], _Mean]:
    cells = grouped(
        _measured(rows, measure).values(),
        lambda cell: tuple(dimension(cell[0], name) for name in by),
    )
    others = [name for name in _PARTS if name not in by]
    found = {}
    for key, own in cells.items():
        known = [value for _, value in own if value is not None]
        parts = frozenset(tuple(row[name] for name in others) for row, _ in own)
        mean = sum(known) / len(known) if len(known) == len(own) else None
        found[key] = mean, len(own), parts
    return found


def _measured(
    rows: Sequence[Row], measure: Measure
) -> Mapping[tuple[Any, ...], tuple[Row, float | None]]:
    """Return a row and a value for each planned cell of the measure; None if not done."""
    scored = measure.benchmark is not None
    rows = [row for row in rows if not scored or row["benchmark"] == measure.benchmark]
    # A metric may exist for some tasks only. Rows of unfinished cells have no metric, so take
    # the tasks from finished cells.
    tasks = {row["task"] for row in rows if row["metric"] == measure.column}
    found: dict[tuple[Any, ...], tuple[Row, float | None]] = {}
    for row in rows:
        if scored and row["task"] not in tasks:
            continue
        cell = (row["method"], row["frozen"], *(row[name] for name in _PARTS))
        if not scored:
            found[cell] = (row, row[measure.column])
        elif row["metric"] == measure.column:
            found[cell] = (row, row["value"])
        else:
            found.setdefault(cell, (row, None))
    return found


def dimension(row: Row, name: str) -> Any:
    return Variant.of(row).label if name == "variant" else row[name]
