"""Data of a line chart: the points of each method, and gaps where a value is missing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from lce_core.study.variants import variant_label


@dataclass(frozen=True)
class Point:
    """A point of a line: a mean over all planned seeds or cells, with a range around it."""

    x: int
    """Position on the x axis: a length or position in tokens, or a number of examples."""
    value: float
    lowest: float
    highest: float
    num_seeds: int
    interval: tuple[float, float] | None = None
    """95 % interval of the mean, if known."""
    num_prompts: int | None = None
    """Number of documents or independent prompts in one seed, if known."""

    @property
    def whisker(self) -> tuple[float, float]:
        """Ends of the whisker to draw: the interval if it is known, the range otherwise."""
        return self.interval or (self.lowest, self.highest)


@dataclass(frozen=True)
class Gap:
    """An x at which the line is interrupted, because some planned seeds are not done."""

    x: int
    value_of_done: float | None
    """Mean over the finished seeds; None if no seed is finished."""
    num_seeds: int
    """Number of finished seeds."""
    num_planned: int
    missing: str
    """Names of the unfinished seeds, with the reason."""


@dataclass(frozen=True)
class Line:
    """Points and gaps of one variant (a method, frozen or tuned), sorted by x."""

    method: str
    frozen: bool
    points: tuple[Point, ...] = ()
    gaps: tuple[Gap, ...] = ()

    @property
    def label(self) -> str:
        """Method name, followed by "tuned" for a tuned variant."""
        return variant_label(self.method, self.frozen)

    @property
    def ends(self) -> list[tuple[int, float]]:
        """(x, y) of everything drawn, sorted by x: the points, and the crosses of `gaps`."""
        known = [(gap.x, gap.value_of_done) for gap in self.gaps if gap.value_of_done is not None]
        return sorted([*((point.x, point.value) for point in self.points), *known])

    @property
    def runs(self) -> list[list[Point]]:
        """Groups of successive points that a line joins; each gap starts a new group."""

        def gaps_before(point: Point) -> int:
            return sum(gap.x < point.x for gap in self.gaps)

        return [list(run) for _, run in itertools.groupby(self.points, gaps_before)]
