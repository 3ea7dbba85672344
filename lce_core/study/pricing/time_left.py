"""How long the rest of a run takes: predicted seconds, corrected by what has finished in it.

Each step has predicted seconds and a group, from wide to narrow: ("cell", "passkey", "yarn"). What
finished corrects its groups by the ratio of measured to predicted seconds, and a group of which
nothing has finished yet by the next wider one's. Steps of a unit follow each other, units wait for
those they need, and so many run at the same time as there are slots. So the rest takes at least
as long as all of it over the slots, and as its longest chain; the greater of the two is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lce_core.study.units import Unit

Group = tuple[str, ...]
"""From wide to narrow: the kind, the benchmark of a cell, the method."""

_LEAST_REST = 0.1
"""Part of a step's time that is taken to be left while it runs, however long it has."""
_TELLING = 0.25
"""Part of a step after which its own progress alone says how long it takes."""


@dataclass(frozen=True)
class Predicted:
    """What is known of a step before it runs."""

    seconds: float
    group: Group
    places: int = 1
    """Of the machine's, which it takes."""


@dataclass(frozen=True)
class Running:
    """A step that runs now."""

    seconds: float
    """Since it began."""
    done: float = 0.0
    """Part of it, 0 to 1, as it says itself."""


class Pace:
    """Measured over predicted seconds by group."""

    def __init__(self) -> None:
        self._sums: dict[Group, tuple[float, float, int]] = {}

    def learn(self, group: Group, predicted: float, measured: float) -> None:
        """A step of this group took `measured` seconds where `predicted` were."""
        for place in _places(group):
            before = self._sums.get(place, (0.0, 0.0, 0))
            self._sums[place] = (before[0] + predicted, before[1] + measured, before[2] + 1)

    def factor(self, group: Group, seconds: float = 0.0) -> float:
        """What to multiply the predicted seconds of a step of this group with.

        A wider group's factor counts like one more step of the mean size of those that finished,
        so one odd step does not rule and many do; or, if it is longer, like the step itself: what
        takes a second says little about what takes hours.
        """
        factor = 1.0
        for place in _places(group):
            predicted, measured, number = self._sums.get(place, (0.0, 0.0, 0))
            if predicted > 0:
                one = max(predicted / number, seconds)
                factor = (measured + factor * one) / (predicted + one)
        return factor


class TimeLeft:
    """What is left of a run."""

    def __init__(
        self, units: Iterable[Unit], predicted: Mapping[str, Predicted], slots: int
    ) -> None:
        """Of these units, parents first.

        Args:
          units: all that is to do.
          predicted: of each of their steps, by fingerprint.
          slots: places of the machine, of which most units take one.
        """
        self._units = [([s.fingerprint for s in unit.steps], unit.needs) for unit in units]
        self._predicted, self._slots, self._pace = predicted, max(1, slots), Pace()
        self._left = {step for steps, _ in self._units for step in steps}
        self._whole = sum(predicted[step].seconds for step in self._left)
        self.is_measured = False
        """Whether a step of this run has finished."""

    def end(self, step: str, seconds: float | None = None) -> None:
        """A step is no longer to do: computed in so many seconds, or there, failed or given up."""
        if step not in self._left:
            return
        self._left.remove(step)
        if seconds is not None:
            predicted = self._predicted[step]
            self._pace.learn(predicted.group, predicted.seconds, seconds)
            self.is_measured = True

    @property
    def done(self) -> float:
        """Part of the predicted seconds whose steps have ended, 0 to 1."""
        if not self._left or not self._whole:
            return 1.0
        return 1.0 - min(1.0, sum(self._predicted[s].seconds for s in self._left) / self._whole)

    def seconds(self, running: Mapping[str, Running]) -> float:
        """Time until nothing is left; 0 exactly then."""
        rest = {step: self._rest(step, running.get(step)) for step in self._left}
        chains: dict[str, float] = {}
        for steps, needs in self._units:
            seconds = sum(rest.get(step, 0.0) for step in steps)
            before = max((chains.get(need, 0.0) for need in needs), default=0.0)
            chains |= dict.fromkeys(steps, before + seconds)
        taken = sum(seconds * self._predicted[step].places for step, seconds in rest.items())
        return max(taken / self._slots, max(chains.values(), default=0.0))

    def _rest(self, step: str, running: Running | None) -> float:
        predicted = self._predicted[step]
        whole = predicted.seconds * self._pace.factor(predicted.group, predicted.seconds)
        if running is None:
            return whole
        if not running.done:
            return max(whole - running.seconds, _LEAST_REST * whole)
        # A step that has just begun says little: what it began with is spread over few parts.
        trust = min(1.0, running.done / _TELLING)
        told = (1 - trust) * whole + trust * running.seconds / running.done
        return (1 - running.done) * told


def group_of(kind: str, axes: Mapping[str, Any]) -> Group:
    """The group of a step."""
    named = ("benchmark", "method") if "benchmark" in axes else ("method",)
    return (kind, *(str(axes.get(axis)) for axis in named))


def spoken(seconds: float) -> str:
    """A duration for people: "40 s", "6 min", "3.2 h", "12 d"."""
    for size, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if seconds < 100 * size:
            number = seconds / size
            return f"{number:.{int(unit == 'h' and number < 9.95)}f} {unit}"
    return f"{seconds / 86400:,.0f} d"


def _places(group: Group) -> list[Group]:
    return [group[:depth] for depth in range(len(group) + 1)]
