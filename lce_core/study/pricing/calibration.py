"""Correct predicted step times with the measured times of finished steps, and estimate the error.

Steps belong to nested groups: (), ("cell",), ("cell", "ruler"), ("cell", "ruler", "yarn"). The
factor of a group is its ratio of measured to predicted seconds, shrunk towards the factor of the
next wider group.

The error of a total time has two components. The scatter of single steps averages out over many
steps; the error of a group's factor does not. Steps of the same narrower group are assumed to have
the same error: forty cells of two methods count as two observations when predicting a third method.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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


@dataclass
class _Finished:
    """The finished steps of a group."""

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
    """Expected total time of some steps, with its relative error."""

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
        """Return the total of steps (group, corrected seconds) and the error of this total."""
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
