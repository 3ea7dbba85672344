"""Joint test of several differences of methods on the same documents, by flipping signs.

If two methods are equally good, a document's difference could as well have the other sign. All
differences of a document flip together, so that their correlation is kept: twenty comparisons of
similar methods cost less than twenty independent ones, and six documents can decide all of them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_FLIPS = 1_999
"""Number of drawn flips; up to `_MOST_ENUMERATED` documents have all of their flips instead."""
_MOST_ENUMERATED = 13
_CHUNK = 2_000
"""Flips computed at a time: their signs for 20,000 documents take 160 MB."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Differences:
    """Differences of two methods by cluster: a document, or a prompt that shares none."""

    names: Sequence[Hashable]
    """Name of each cluster; clusters of several comparisons with equal names flip together."""
    sums: Numbers
    """Contribution of each cluster to the mean difference, shape (n,); they add up to it."""
    weights: Numbers
    """Share of each cluster in the mean, shape (n,); they add up to 1."""
    strata: NDArray[np.int64]
    """Stratum of each cluster, such as the number of its task, shape (n,)."""

    @cached_property
    def value(self) -> float:
        return float(self.sums.sum())

    @cached_property
    def by_stratum(self) -> list[NDArray[np.int64]]:
        """Indices of the clusters of each stratum; strata with a single cluster are merged."""
        found = [np.flatnonzero(self.strata == one) for one in np.unique(self.strata)]
        single = [one for one in found if one.size == 1]
        if len(single) == 1 or len(found) == len(single):
            return [np.arange(self.sums.size)]
        return [one for one in found if one.size > 1] + ([np.concatenate(single)] if single else [])

    @cached_property
    def residuals(self) -> Numbers:
        """Return each cluster's contribution minus its share of its stratum's difference, (n,).

        Scaled up so that their sum of squares is the variance of the difference.
        """
        found = np.empty_like(self.sums)
        for own in self.by_stratum:
            sums, weights = self.sums[own], self.weights[own]
            scale = math.sqrt(own.size / max(1, own.size - 1))
            found[own] = scale * (sums - weights * sums.sum() / weights.sum())
        return found

    @cached_property
    def error(self) -> float:
        found = math.sqrt(float((self.residuals**2).sum()))
        return 0.0 if found < 1e-12 * float(np.abs(self.sums).sum()) else found

    @cached_property
    def freedom(self) -> float:
        """Degrees of freedom of `error`: Satterthwaite 1946 (Biometrics Bulletin 2, 110-114)."""
        parts = [float((self.residuals[own] ** 2).sum()) for own in self.by_stratum]
        least = float(sum(own.size - 1 for own in self.by_stratum))
        below = sum(
            part**2 / max(1, own.size - 1) for part, own in zip(parts, self.by_stratum, strict=True)
        )
        return max(1.0, min(least, sum(parts) ** 2 / below)) if below else max(1.0, least)

    def __neg__(self) -> Differences:
        return replace(self, sums=-self.sums)


def step_down(family: Sequence[Differences]) -> list[float]:
    """Return the adjusted two-sided p-value of each difference of a family.

    If every adjusted p-value up to 0.05 counts as a difference, at most 5 % of studies contain a
    false finding. The test assumes that a document's difference is as likely to be above as below
    the mean by the same amount; `Contrast.skewness` says how far that is from true. Signs follow
    from the names of the documents, so neither order nor other comparisons change them.

    Source: Westfall and Young 1993, Resampling-Based Multiple Testing, algorithm 4.1 (step-down
    maximum); Romano and Wolf 2005 (Econometrica 73, 1237-1282).
    """
    found = _Flipped(family)
    observed = np.abs(found.studentized(np.ones((1, len(found.names)))))[:, 0]
    order = np.argsort(-observed, kind="stable")
    exceeded, number = np.zeros(len(family)), 0
    for signs in _signs(found.names):
        # The maximum over a difference and all that are less significant.
        sizes = np.abs(found.studentized(signs))[order[::-1]]
        largest = np.maximum.accumulate(sizes, axis=0)[::-1]
        exceeded += (largest >= observed[order][:, None] * (1 - 1e-9)).sum(axis=1)
        number += len(signs)
    adjusted = np.empty(len(family))
    adjusted[order] = np.maximum.accumulate(exceeded / number)
    return [float(one) for one in np.minimum(adjusted, 1.0)]


def critical_value(family: Sequence[Differences], alpha: float) -> float:
    """Return the standard errors by which any difference strays in a share `alpha` of studies.

    Flips the residuals, because the true differences need not be 0.
    """
    found = _Flipped([replace(one, sums=one.residuals) for one in family])
    largest = [np.abs(found.studentized(signs)).max(axis=0) for signs in _signs(found.names)]
    return float(np.quantile(np.concatenate(largest), 1 - alpha, method="higher"))


class _Flipped:
    """A family whose differences over the same clusters are computed together."""

    def __init__(self, family: Sequence[Differences]) -> None:
        self.names = sorted({name for one in family for name in one.names}, key=repr)
        place = {name: number for number, name in enumerate(self.names)}
        self._size = len(family)
        self._groups: dict[Any, tuple[Differences, NDArray[np.int64], list[int]]] = {}
        self._family = family
        for number, one in enumerate(family):
            columns = np.array([place[name] for name in one.names])
            key = columns.tobytes(), one.weights.tobytes(), one.strata.tobytes()
            self._groups.setdefault(key, (one, columns, []))[2].append(number)

    def studentized(self, signs: Numbers) -> Numbers:
        """Return each difference in standard errors (differences, sets) for signs (sets, names)."""
        found = np.empty((self._size, len(signs)))
        for first, columns, numbers in self._groups.values():
            sums = np.stack([self._family[number].sums for number in numbers], axis=1)
            value = np.zeros((len(signs), len(numbers)))
            square = np.zeros_like(value)
            for own in first.by_stratum:
                flipped = signs[:, columns[own]]
                inside, weights = sums[own], first.weights[own]
                total = flipped @ inside
                share = total / weights.sum()
                # The sum of squares of the flipped residuals.
                beyond = (inside**2).sum(axis=0) + share**2 * float((weights**2).sum())
                beyond -= 2 * share * (flipped @ (inside * weights[:, None]))
                value += total
                square += own.size / max(1, own.size - 1) * np.maximum(beyond, 0.0)
            # Equal differences on all clusters have no spread: a large number, not infinity.
            least = 1e-24 * (sums**2).sum(axis=0) + 1e-300
            found[numbers] = (value / np.sqrt(np.maximum(square, least))).T
        return found


def _signs(names: Sequence[Hashable]) -> Iterator[Numbers]:
    """Yield the signs of all clusters, shape (flips, clusters), in parts; the first is unflipped.

    Sets of signs and their opposites give the same absolute differences: one of the two suffices.
    """
    number = len(names)
    if number <= _MOST_ENUMERATED:
        bits = np.arange(2 ** max(0, number - 1))[:, None] >> np.arange(number) & 1
        yield np.where(bits, -1.0, 1.0)
        return
    drawn = np.stack([_drawn(name) for name in names], axis=1)
    yield np.ones((1, number))
    for start in range(0, NUM_FLIPS, _CHUNK):
        yield np.where(drawn[start : start + _CHUNK], -1.0, 1.0)


@lru_cache(maxsize=100_000)
def _drawn(name: Hashable) -> NDArray[np.uint8]:
    seed = int.from_bytes(blake2b(repr(name).encode(), digest_size=8).digest())
    bits = np.random.default_rng(seed).bytes(-(-NUM_FLIPS // 8))
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8))[:NUM_FLIPS]
