"""Correct predicted step times with the measured times of finished steps, and estimate the error.

Steps belong to nested groups: (), ("cell",), ("cell", "ruler"), ("cell", "ruler", "yarn"). The
factor of a group is its ratio of measured to predicted seconds, shrunk towards the factor of the
next wider group.

The error of a total time has two components. The scatter of single steps averages out over many
steps; the error of a group's factor does not. Steps of the same narrower group are assumed to have
the same error: forty cells of two methods count as two observations when predicting a third method.

`TimeLeft` estimates the time left of a run from predicted seconds, corrected by the run's finished
steps. It is the larger of two bounds: all remaining seconds divided by the number of slots
(parallel workers), and the duration of the longest chain of units that wait for each other.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lce_core.study.units import Unit

Group = tuple[str, ...]
"""Step kind, benchmark (only for cells) and method, such as ("cell", "ruler", "yarn"). A prefix is
a wider group."""

LEAST = 8
"""Finished steps from which a group's scatter is known."""
UNSEEN_SPREAD = 0.7
"""Assumed standard deviation of log(measured / predicted) in other groups: a factor of two."""
_NORMAL = 1.4826
"""Ratio of standard deviation to median absolute deviation for normal errors."""
_SHORTEST = 1e-3
"""Resolution of seconds in records; replaces 0, which has no logarithm."""
_LEAST_REST = 0.1
"""Smallest fraction of its predicted time left for a running step without reported progress."""
_RELIABLE_FRACTION = 0.25
"""Fraction from which a step's progress alone determines its time left; before, the estimate is a
weighted mean of the times that follow from progress and from prediction."""


@dataclass
class _Finished:
    predicted: float = 0.0
    measured: float = 0.0
    log_ratios: list[float] = field(default_factory=list)
    narrower: set[Group] = field(default_factory=set)

    @property
    def spread(self) -> float:
        """Robust standard deviation of log(measured / predicted)."""
        ratios = np.array(self.log_ratios)
        return _NORMAL * float(np.median(np.abs(ratios - np.median(ratios))))


@dataclass(frozen=True)
class Expected:
    """Expected total time of some steps."""

    seconds: float
    error: float | None
    """Two relative standard deviations; None if most of the time is that of unseen groups."""


class Calibration:
    """Corrects predicted step times with the finished steps of a store or of the current run."""

    def __init__(self) -> None:
        self._finished: dict[Group, _Finished] = defaultdict(_Finished)

    @property
    def is_empty(self) -> bool:
        return not self._finished

    def learn(self, group: Group, predicted: float, measured: float) -> None:
        if predicted <= 0:
            return
        for depth in range(len(group) + 1):
            known = self._finished[group[:depth]]
            known.predicted += predicted
            known.measured += measured
            known.log_ratios.append(math.log(max(measured, _SHORTEST) / predicted))
            known.narrower.add(group[: depth + 1])

    def seconds(self, group: Group, predicted: float) -> float:
        """Return the corrected seconds of a step.

        The factor of the wider group is a prior with the weight of one finished step of mean size,
        which limits outliers, or of this step if it takes longer, because steps of a second predict
        little about steps of an hour.
        """
        factor = 1.0
        for depth in range(len(group) + 1):
            if known := self._finished.get(group[:depth]):
                prior = max(known.predicted / len(known.log_ratios), predicted)
                factor = (known.measured + factor * prior) / (known.predicted + prior)
        return factor * predicted

    def expected(self, steps: Iterable[tuple[Group, float]]) -> Expected:
        """Return the total of steps (group, corrected seconds) and its error."""
        parts: dict[Group, dict[object, float]] = defaultdict(lambda: defaultdict(float))
        for number, (group, seconds) in enumerate(steps):
            seen = self._seen(group)
            parts[seen][number if seen == group else group[: len(seen) + 1]] += seconds
        sums = {seen: sum(part.values()) for seen, part in parts.items()}
        whole, unseen = sum(sums.values()), sums.pop((), 0.0)
        if whole <= 0 or unseen > whole / 2:
            return Expected(whole, None)
        variance = (unseen * _relative(UNSEEN_SPREAD)) ** 2
        for seen, seconds in sums.items():
            known = self._finished[seen]
            independent = known.narrower if known.narrower != {seen} else known.log_ratios
            variance += (seconds * _relative(known.spread / math.sqrt(len(independent)))) ** 2
            scatter = _relative(known.spread)
            variance += sum((part * scatter) ** 2 for part in parts[seen].values())
        return Expected(whole, 2 * math.sqrt(variance) / whole)

    def _seen(self, group: Group) -> Group:
        """Return the narrowest group of known scatter; () without one."""
        while group and len(self._finished.get(group, _Finished()).log_ratios) < LEAST:
            group = group[:-1]
        return group


def group_of(kind: str, axes: Mapping[str, Any]) -> Group:
    named = ("benchmark", "method") if "benchmark" in axes else ("method",)
    return (kind, *(str(axes.get(axis)) for axis in named))


def _relative(spread: float) -> float:
    """Return the relative standard deviation of a log-normal value."""
    return math.sqrt(math.expm1(min(spread, 5.0) ** 2))


@dataclass(frozen=True)
class Predicted:
    """Predicted time of a step that has not started."""

    seconds: float
    group: Group
    slots: int = 1
    """Slots of the machine that the step occupies."""


@dataclass(frozen=True)
class Running:
    """Progress of a step: seconds since it started."""

    seconds: float
    done: float = 0.0
    """Fraction, as reported by the step."""


class TimeLeft:
    """Tracks the unfinished steps of a run and estimates the time left."""

    def __init__(
        self, units: Iterable[Unit], predicted: Mapping[str, Predicted], slots: int
    ) -> None:
        self._units = [([s.fingerprint for s in unit.steps], unit.needs) for unit in units]
        self._predicted, self._slots = predicted, max(1, slots)
        self._calibration = Calibration()
        # Not a set, whose order and therefore whose sums' last digits differ between processes.
        self._left = {step: None for steps, _ in self._units for step in steps}
        self._whole = sum(predicted[step].seconds for step in self._left)
        self.is_measured = False
        """True once a step of this run has finished with a measured time."""

    def end(self, step: str, seconds: float | None = None) -> None:
        """Remove a finished or abandoned step; `seconds` are measured if this run computed it."""
        if step not in self._left:
            return
        del self._left[step]
        if seconds is not None:
            predicted = self._predicted[step]
            self._calibration.learn(predicted.group, predicted.seconds, seconds)
            self.is_measured = True

    @property
    def done(self) -> float:
        """Fraction of the run's predicted seconds in steps removed by `end`."""
        if not self._left or not self._whole:
            return 1.0
        return 1.0 - min(1.0, sum(self._predicted[s].seconds for s in self._left) / self._whole)

    def seconds(self, running: Mapping[str, Running]) -> float:
        rest = {step: self._rest(step, running.get(step)) for step in self._left}
        chains: dict[str, float] = {}
        for steps, needs in self._units:
            seconds = sum(rest.get(step, 0.0) for step in steps)
            before = max((chains.get(need, 0.0) for need in needs), default=0.0)
            chains |= dict.fromkeys(steps, before + seconds)
        busy = sum(seconds * self._predicted[step].slots for step, seconds in rest.items())
        return max(busy / self._slots, max(chains.values(), default=0.0))

    def _rest(self, step: str, running: Running | None) -> float:
        predicted = self._predicted[step]
        whole = self._calibration.seconds(predicted.group, predicted.seconds)
        if running is None:
            return whole
        if not running.done:
            return max(whole - running.seconds, _LEAST_REST * whole)
        # Early extrapolation is unreliable because startup time is spread over little progress.
        trust = min(1.0, running.done / _RELIABLE_FRACTION)
        estimate = (1 - trust) * whole + trust * running.seconds / running.done
        return (1 - running.done) * estimate
