"""What a chart draws: the points of each row of the study, and the gaps between them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One plotted row of the catalog: a mean over all planned seeds, or cells, and its range."""

    x: int
    """Length or position in tokens."""
    value: float
    lowest: float
    highest: float
    num_seeds: int


@dataclass(frozen=True)
class Gap:
    """A row of the catalog without a value: some planned seeds are not done."""

    x: int
    value_of_done: float | None
    """Mean over the seeds that are; None if there are none."""
    num_seeds: int
    """Seeds that are done."""
    num_planned: int
    missing: str
    """Which seeds are not done, and why."""


@dataclass(frozen=True)
class Line:
    """One row of the study: a method, frozen or tuned; points and gaps by x."""

    method: str
    frozen: bool
    points: tuple[Point, ...] = ()
    gaps: tuple[Gap, ...] = ()

    @property
    def label(self) -> str:
        """The method, and "tuned" if it was."""
        return self.method if self.frozen else f"{self.method} tuned"

    @property
    def ends(self) -> list[tuple[int, float]]:
        """Places (x, value) of all marks, gaps with a value included, by x."""
        known = [(gap.x, gap.value_of_done) for gap in self.gaps if gap.value_of_done is not None]
        return sorted([*((point.x, point.value) for point in self.points), *known])

    @property
    def runs(self) -> list[list[Point]]:
        """The points that a stroke joins: those with no gap between them."""

        def gaps_before(point: Point) -> int:
            return sum(gap.x < point.x for gap in self.gaps)

        return [list(run) for _, run in itertools.groupby(self.points, gaps_before)]
