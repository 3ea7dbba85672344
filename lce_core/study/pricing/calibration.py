"""Correct predicted step times with the measured times of finished steps, and estimate the error.

`Calibration` uses finished steps of the store, `RunCalibration` those of the current run. Steps
belong to nested groups: ("cell",), ("cell", "ruler"), ("cell", "ruler", "yarn"). For each group
with at least `LEAST` finished steps, a line in log-log space maps predicted to measured seconds, by
default with slope 1. If step sizes differ enough and the fit improves, the slope is the median
slope of all pairs of steps (Theil 1950, Sen 1968), which tolerates up to 29 % outliers. The level
of the line makes the sum of the fitted seconds equal to the sum of the measured ones, with outliers
clipped. A step uses the line of its narrowest group that has one. Beyond the sizes of finished
steps, the ratio at that end of the line applies.

The error of a total time has two components. The scatter of single steps averages out over many
steps; the error of a group's line does not. Steps of the same narrower group are assumed to have
the same error: forty cells of two methods count as two observations when predicting a third method.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Group = tuple[str, ...]
"""Step kind, benchmark (only for cells) and method, such as ("cell", "ruler", "yarn"). A prefix is
a wider group."""

LEAST = 8
"""Finished steps that a group needs to get a line."""
UNSEEN_SPREAD = 0.7
"""Assumed standard deviation of log(measured / predicted) without a line: a factor of two."""
_LEAST_RANGE = math.log(4)
"""A slope is fitted if the largest prediction is at least 4 times the smallest one."""
_BETTER = 0.9
"""A fitted slope must reduce the spread of residuals to this fraction."""
_SLOPES = (0.5, 2.0)
"""Slopes outside are attributed to noise and clipped."""
_NORMAL = 1.4826
"""Ratio of standard deviation to median absolute deviation for normal errors."""
_MEDIAN = math.sqrt(math.pi / 2)
"""Ratio of the standard error of a median to that of a mean for normal errors."""
_ODD = 3.0
"""Residuals are clipped at this many standard deviations."""
_SHORTEST = 1e-3
"""Resolution of seconds in records; replaces 0, which has no logarithm."""


@dataclass(frozen=True)
class Timing:
    """Predicted and measured seconds of a finished step."""

    group: Group
    predicted: float
    measured: float
    judged: float | None = None
    """Prediction of a cost model fitted without this step, for the error estimate; None if the cost
    model was not fitted."""


@dataclass(frozen=True)
class Line:
    """Maps predicted seconds p to measured m: log m = level + slope (log p - centre)."""

    level: float
    slope: float
    centre: float
    low: float
    """Logarithm of the smallest predicted seconds in the fit."""
    high: float
    """Logarithm of the largest."""
    spread: float
    """Robust standard deviation of the residuals, in natural logarithms."""
    independent: int
    """Independent observations: finished steps, or narrower groups that contain them."""

    def seconds(self, predicted: float) -> float:
        if predicted <= 0:
            return 0.0
        size = math.log(predicted)
        inside = min(max(size, self.low), self.high)
        return math.exp(self.level + self.slope * (inside - self.centre) + size - inside)

    @property
    def shared(self) -> float:
        """Relative standard error of the line, an error that all steps of the group share."""
        return _relative(self.spread * _MEDIAN / math.sqrt(self.independent))


def fitted_line(steps: Sequence[Timing], independent: int | None = None) -> Line:
    """Fit the line that maps the predicted to the measured seconds of finished steps."""
    x = np.log(np.array([one.predicted for one in steps]))
    y = np.log(np.array([max(one.measured, _SHORTEST) for one in steps]))
    centre, slope = float(np.median(x)), 1.0
    level, spread = _level(y - (x - centre))
    if np.ptp(x) >= _LEAST_RANGE and len(x) >= LEAST:
        tilt = min(max(_median_slope(x, y), _SLOPES[0]), _SLOPES[1])
        tilted, left = _level(y - tilt * (x - centre))
        if left < _BETTER * spread:
            level, slope, spread = tilted, tilt, left
    fitted = level + slope * (x - centre)
    # Users need sums, which long steps dominate: shift the level until the sum of the fitted
    # seconds equals the sum of the measured seconds, with residuals clipped at `_ODD` deviations.
    clipped = fitted + np.clip(y - fitted, -_ODD * spread, _ODD * spread)
    level += float(np.log(np.exp(clipped).sum() / np.exp(fitted).sum()))
    low, high = float(x.min()), float(x.max())
    line = Line(level, slope, centre, low, high, spread, independent or len(x))
    judged = [line.seconds(one.judged) if one.judged else 0.0 for one in steps]
    if all(judged):
        unseen = _NORMAL * float(np.median(np.abs(y - np.log(judged))))
        return replace(line, spread=max(spread, unseen))
    return line


@dataclass(frozen=True)
class Expected:
    """Expected total time of some steps, with its relative error."""

    seconds: float
    error: float | None
    """Two relative standard deviations; None if most of the time has no line."""


class Calibration:
    """Corrects predicted step times with lines fitted to the store's finished steps."""

    def __init__(self, timings: Iterable[Timing] = ()) -> None:
        by_group: dict[Group, list[Timing]] = {}
        for one in timings:
            if one.predicted > 0:
                for depth in range(1, len(one.group) + 1):
                    by_group.setdefault(one.group[:depth], []).append(one)
        self.lines: Mapping[Group, Line] = {
            group: _line(group, steps) for group, steps in by_group.items() if len(steps) >= LEAST
        }

    def seconds(self, group: Group, predicted: float) -> float:
        """Return the corrected seconds of a step; `predicted` if none of its groups has a line."""
        line = self.lines.get(self._calibrated(group))
        return predicted if line is None else line.seconds(predicted)

    def expected(self, steps: Iterable[tuple[Group, float]]) -> Expected:
        """Return the total of steps (group, corrected seconds) and the error of this total."""
        sums: dict[Group, float] = {}
        alike: dict[Group, dict[object, float]] = {}
        for number, (group, seconds) in enumerate(steps):
            calibrated = self._calibrated(group)
            sums[calibrated] = sums.get(calibrated, 0.0) + seconds
            parts = alike.setdefault(calibrated, {})
            part = number if calibrated == group else group[: len(calibrated) + 1]
            parts[part] = parts.get(part, 0.0) + seconds
        whole, unseen = sum(sums.values()), sums.get((), 0.0)
        if whole <= 0 or unseen > whole / 2:
            return Expected(whole, None)
        variance = (unseen * _relative(UNSEEN_SPREAD)) ** 2
        for calibrated, seconds in sums.items():
            if line := self.lines.get(calibrated):
                variance += (seconds * line.shared) ** 2
                scatter = _relative(line.spread)
                variance += sum((part * scatter) ** 2 for part in alike[calibrated].values())
        return Expected(whole, 2 * math.sqrt(variance) / whole)

    def _calibrated(self, group: Group) -> Group:
        depths = range(len(group), 0, -1)
        return next((group[:depth] for depth in depths if group[:depth] in self.lines), ())


class RunCalibration:
    """Corrects predicted step times with the finished steps of the current run.

    The machine's load may differ from earlier runs, so this corrects the output of `Calibration`
    once more. The factor of each group is its ratio of measured to predicted seconds, shrunk
    towards the factor of the next wider group.
    """

    def __init__(self) -> None:
        self._sums: dict[Group, tuple[float, float, int]] = {}

    def learn(self, group: Group, predicted: float, measured: float) -> None:
        for wider in _from_wide_to_narrow(group):
            before = self._sums.get(wider, (0.0, 0.0, 0))
            self._sums[wider] = (before[0] + predicted, before[1] + measured, before[2] + 1)

    def factor(self, group: Group, seconds: float = 0.0) -> float:
        """Return the factor by which to multiply the predicted seconds of a step in `group`.

        The factor of the wider group is a prior with the weight of one finished step of mean size,
        which limits outliers, or of `seconds` if the step takes longer, because steps of a second
        predict little about steps of an hour.
        """
        factor = 1.0
        for wider in _from_wide_to_narrow(group):
            predicted, measured, number = self._sums.get(wider, (0.0, 0.0, 0))
            if predicted > 0:
                one = max(predicted / number, seconds)
                factor = (measured + factor * one) / (predicted + one)
        return factor


def group_of(kind: str, axes: Mapping[str, Any]) -> Group:
    named = ("benchmark", "method") if "benchmark" in axes else ("method",)
    return (kind, *(str(axes.get(axis)) for axis in named))


def _line(group: Group, steps: Sequence[Timing]) -> Line:
    narrower = {one.group[: len(group) + 1] for one in steps}
    return fitted_line(steps, len(steps) if narrower == {group} else len(narrower))


def _level(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the median of the values and their robust standard deviation (scaled MAD)."""
    level = float(np.median(values))
    return level, _NORMAL * float(np.median(np.abs(values - level)))


def _median_slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    one, other = np.triu_indices(len(x), 1)
    apart = x[other] - x[one]
    far = np.abs(apart) > 1e-9
    return float(np.median((y[other] - y[one])[far] / apart[far]))


def _relative(spread: float) -> float:
    """Return the relative standard deviation of a log-normal value."""
    return math.sqrt(math.expm1(min(spread, 5.0) ** 2))


def _from_wide_to_narrow(group: Group) -> list[Group]:
    return [group[:depth] for depth in range(len(group) + 1)]
