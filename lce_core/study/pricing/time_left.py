"""Estimate the time left of a run from predicted seconds, corrected by the run's finished steps.

It is the larger of two bounds: all remaining seconds divided by the number of slots (parallel
workers), and the duration of the longest chain of units that wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lce_core.study.pricing.calibration import Calibration, Group
from lce_core.study.units import Unit

_LEAST_REST = 0.1
"""Smallest fraction of its predicted time left for a running step without reported progress."""
_RELIABLE_FRACTION = 0.25
"""Fraction from which a step's progress alone determines its time left; before, the estimate is a
weighted mean of the times that follow from progress and from prediction."""


@dataclass(frozen=True)
class Predicted:
    """Predicted time of a step that has not started."""

    seconds: float
    group: Group
    slots: int = 1
    """Slots of the machine that the step occupies."""


@dataclass(frozen=True)
class Running:
    """Progress of a running step."""

    seconds: float
    """Seconds since the step started."""
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
        self._left = {step for steps, _ in self._units for step in steps}
        self._whole = sum(predicted[step].seconds for step in self._left)
        self.is_measured = False
        """True once a step of this run has finished with a measured time."""

    def end(self, step: str, seconds: float | None = None) -> None:
        """Remove a finished or abandoned step; `seconds` are measured if this run computed it."""
        if step not in self._left:
            return
        self._left.remove(step)
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
