"""Predicted seconds corrected by what steps have taken: lines through logarithms, and their error.

Steps fall into groups, from wide to narrow: ("cell",), ("cell", "ruler"), ("cell", "ruler",
"yarn"). In each group of at least `LEAST` finished steps a line is put through the logarithms of
measured over predicted seconds: the median ratio, or, where sizes differ enough and it fits better,
the median slope of all pairs (Theil 1950, Sen 1968), which up to 29 % of odd steps do not move. A
step is corrected by its narrowest such group. Beyond the sizes that were seen the ratio at the
nearest end holds.

The error of a sum has two parts: what each step scatters, which evens out, and what a group's line
is off by as a whole, which does not. Steps of one narrower group are taken to err alike: forty
cells of two methods say as much of a third one as two cells do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lce_core.study.pricing.time_left import Group

LEAST = 8
"""Finished steps from which on a group corrects; fewer leave the prediction as it is."""
UNSEEN_SPREAD = 0.7
"""Standard deviation of the logarithm that a prediction nothing corrects is taken to have: a factor
of two either way."""
_LEAST_RANGE = math.log(4)
"""Of predicted seconds, for a slope: steps of one size do not tell it."""
_BETTER = 0.9
"""Part of the ratio's spread that a slope has to leave."""
_SLOPES = (0.5, 2.0)
_NORMAL = 1.4826
"""Standard deviations in a median absolute deviation, of normal errors."""
_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, of normal errors."""
_ODD = 3.0
"""Standard deviations beyond which a residual counts as that many."""
_SHORTEST = 1e-3
"""Seconds that records resolve."""


@dataclass(frozen=True)
class Seen:
    """A finished step: what was predicted of it, and what it took."""

    group: Group
    predicted: float
    measured: float
    judged: float | None = None
    """Predicted by what did not know of it, where the predictor was fitted to it: for the error."""


@dataclass(frozen=True)
class Line:
    """Measured against predicted seconds of a group: log m = level + slope (log p - centre)."""

    level: float
    slope: float
    centre: float
    low: float
    high: float
    """Logarithms of the smallest and the largest predicted seconds that were seen."""
    spread: float
    """Standard deviation of what remains, of the logarithm; outliers do not move it."""
    independent: int
    """Finished steps, or narrower groups of them, which err independently."""

    def seconds(self, predicted: float) -> float:
        """What to expect where so many seconds were predicted; 0 of 0."""
        if predicted <= 0:
            return 0.0
        size = math.log(predicted)
        inside = min(max(size, self.low), self.high)
        return math.exp(self.level + self.slope * (inside - self.centre) + size - inside)

    @property
    def shared(self) -> float:
        """Relative error of the line itself, in standard deviations."""
        return _relative(self.spread * _MEDIAN / math.sqrt(self.independent))


def fitted_line(steps: Sequence[Seen], independent: int | None = None) -> Line:
    """The line of some finished steps, at least one, all of more than 0 predicted seconds.

    Args:
      steps: the steps.
      independent: see `Line`; None for as many as there are steps.
    """
    x = np.log(np.array([one.predicted for one in steps]))
    y = np.log(np.array([max(one.measured, _SHORTEST) for one in steps]))
    centre, slope = float(np.median(x)), 1.0
    level, spread = _level(y - (x - centre))
    if np.ptp(x) >= _LEAST_RANGE and len(x) >= LEAST:
        tilt = min(max(_median_slope(x, y), _SLOPES[0]), _SLOPES[1])
        tilted, left = _level(y - tilt * (x - centre))
        if left < _BETTER * spread:
            level, slope, spread = tilted, tilt, left
    told = level + slope * (x - centre)
    # Sums are asked for, and the dear steps make them; odd ones count as three deviations.
    taken = told + np.clip(y - told, -_ODD * spread, _ODD * spread)
    level += float(np.log(np.exp(taken).sum() / np.exp(told).sum()))
    low, high = float(x.min()), float(x.max())
    line = Line(level, slope, centre, low, high, spread, independent or len(x))
    judged = [line.seconds(one.judged) if one.judged else 0.0 for one in steps]
    if all(judged):
        unseen = _NORMAL * float(np.median(np.abs(y - np.log(judged))))
        return replace(line, spread=max(spread, unseen))
    return line


@dataclass(frozen=True)
class Expected:
    """What some steps are expected to take."""

    seconds: float
    error: float | None
    """Relative, two standard deviations; None where less than half of it was ever measured."""


class Correction:
    """What finished steps say of predictions."""

    def __init__(self, seen: Iterable[Seen] = ()) -> None:
        by_group: dict[Group, list[Seen]] = {}
        for one in seen:
            if one.predicted > 0:
                for depth in range(1, len(one.group) + 1):
                    by_group.setdefault(one.group[:depth], []).append(one)
        self.lines: Mapping[Group, Line] = {
            group: _line(group, steps) for group, steps in by_group.items() if len(steps) >= LEAST
        }

    def seconds(self, group: Group, predicted: float) -> float:
        """Corrected seconds of a step; the predicted ones where too little was seen."""
        line = self.lines.get(self._place(group))
        return predicted if line is None else line.seconds(predicted)

    def expected(self, steps: Iterable[tuple[Group, float]]) -> Expected:
        """Sum and error of steps given by group and corrected seconds."""
        sums: dict[Group, float] = {}
        alike: dict[Group, dict[object, float]] = {}
        for number, (group, seconds) in enumerate(steps):
            place = self._place(group)
            sums[place] = sums.get(place, 0.0) + seconds
            parts = alike.setdefault(place, {})
            part = number if place == group else group[: len(place) + 1]
            parts[part] = parts.get(part, 0.0) + seconds
        whole, unseen = sum(sums.values()), sums.get((), 0.0)
        if whole <= 0 or unseen > whole / 2:
            return Expected(whole, None)
        variance = (unseen * _relative(UNSEEN_SPREAD)) ** 2
        for place, seconds in sums.items():
            if line := self.lines.get(place):
                variance += (seconds * line.shared) ** 2
                scatter = _relative(line.spread)
                variance += sum((part * scatter) ** 2 for part in alike[place].values())
        return Expected(whole, 2 * math.sqrt(variance) / whole)

    def _place(self, group: Group) -> Group:
        """The narrowest group with a line; the empty one if there is none."""
        depths = range(len(group), 0, -1)
        return next((group[:depth] for depth in depths if group[:depth] in self.lines), ())


def _line(group: Group, steps: Sequence[Seen]) -> Line:
    narrower = {one.group[: len(group) + 1] for one in steps}
    return fitted_line(steps, len(steps) if narrower == {group} else len(narrower))


def _level(values: NDArray[np.float64]) -> tuple[float, float]:
    """Median and spread."""
    level = float(np.median(values))
    return level, _NORMAL * float(np.median(np.abs(values - level)))


def _median_slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    one, other = np.triu_indices(len(x), 1)
    apart = x[other] - x[one]
    far = np.abs(apart) > 1e-9
    return float(np.median((y[other] - y[one])[far] / apart[far]))


def _relative(spread: float) -> float:
    """Relative standard deviation of a quantity whose logarithm has this one."""
    return math.sqrt(math.expm1(min(spread, 5.0) ** 2))
