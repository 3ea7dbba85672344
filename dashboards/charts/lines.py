"""Data of a line chart: the points of each method, and gaps where a value is missing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.contents import Row
from dashboards.families import Variant


@dataclass(frozen=True)
class Line:
    """Rows of one variant, sorted by `x`: a length or position in tokens, or a number of examples.

    The value `y` of a point is a mean over all planned seeds or cells. A row without it is a gap,
    which interrupts the line. The other columns are those of the query `scores`; a point needs only
    `num_seeds` of them.
    """

    variant: Variant
    rows: Sequence[Row]

    @property
    def points(self) -> list[Row]:
        return [row for row in self.rows if row["y"] is not None]

    @property
    def ends(self) -> list[tuple[int, float]]:
        """(x, y) of everything drawn: the points, and the means over the finished seeds of gaps."""
        found = [(row["x"], row["value_of_done" if row["y"] is None else "y"]) for row in self.rows]
        return [(x, y) for x, y in found if y is not None]

    @property
    def ys(self) -> list[float]:
        """All y of `ends` and of whiskers."""
        return [y for _, y in self.ends] + [y for point in self.points for y in whisker(point)]

    @property
    def runs(self) -> list[list[Row]]:
        """Groups of successive points that a line joins; each gap starts a new group."""
        groups = itertools.groupby(self.rows, lambda row: row["y"] is None)
        return [list(run) for is_gap, run in groups if not is_gap]


def lines_of(rows: Sequence[Row], x: str, y: str) -> dict[Variant, Line]:
    """Return a `Line` per variant, from rows with columns named `x` and `y`."""
    found: dict[Variant, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row[x]):
        found.setdefault(Variant.of(row), []).append({**row, "x": row[x], "y": row[y]})
    return {one: Line(one, found[one]) for one in dict.fromkeys(map(Variant.of, rows))}


def whisker(point: Row) -> tuple[float, float]:
    """Return the ends of the whisker: the interval if it is known, or else the range of seeds."""
    if point.get("ci_low") is not None:
        return point["ci_low"], point["ci_high"]
    return seed_range(point)


def seed_range(point: Row) -> tuple[float, float]:
    """Return the lowest and the highest seed; the point itself if these are not known."""
    if "lowest" in point:
        return point["lowest"], point["highest"]
    return point["y"], point["y"]
