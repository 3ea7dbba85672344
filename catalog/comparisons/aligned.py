"""Scores of several methods on the same prompts, and the contrast of two of these methods.

`aligned` groups the cells of one benchmark and length by equal prompts, metric and aggregation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.comparisons.samples import Cell, Method
from lce_core.statistics.contrasts import Contrast, SeedVariances, seed_variances, skewness

Part = tuple[str, int]
"""Task and seed of a cell."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AlignedScores:
    """Scores of m methods on the same n prompts; a part is one task with one seed."""

    methods: list[Method]
    cells: list[list[Cell]]
    """`cells[part][method]`, both by index."""
    seeds: NDArray[np.int64]
    """Seed of each part, shape (parts,)."""
    parts: NDArray[np.int64]
    """Index of each prompt's part, shape (n,)."""
    clusters: NDArray[np.int64]
    """Index of the document that each prompt was built from, shape (n,); one per prompt if
    prompts share no documents."""
    scores: Numbers
    """Score of each prompt and method, shape (n, m)."""

    @cached_property
    def is_ratio(self) -> bool:
        """True if values are exponentials of losses, which are compared by their logarithms."""
        return self.cells[0][0].aggregation != "mean"

    @cached_property
    def values(self) -> Numbers:
        """Each cell's default metric or its logarithm, shape (parts, m)."""
        values = np.array([[cell.value for cell in row] for row in self.cells], dtype=np.float64)
        return np.log(values) if self.is_ratio else values

    @cached_property
    def influence(self) -> Numbers:
        """Each prompt's first-order contribution to its method's mean, shape (n, m).

        The contributions of a method average to 0.
        """
        added = np.empty_like(self.scores)
        sizes = np.bincount(self.parts)
        for number, row in enumerate(self.cells):
            rows = self.parts == number
            scores = self.scores[rows]
            if row[0].aggregation == "mean of powers":
                scores = np.exp(scores - self.values[number])  # the mean's logarithm has slope 1
            added[rows] = (scores - scores.mean(axis=0)) * (
                len(self.parts) / (len(self.cells) * sizes[number])
            )
        return added

    @cached_property
    def by_seed(self) -> Numbers:
        """Each method's mean over tasks for each seed, shape (seeds, m); seeds ascending."""
        seeds = self.seeds
        return np.stack([self.values[seeds == seed].mean(axis=0) for seed in np.unique(seeds)])

    @cached_property
    def runs(self) -> list[tuple[str | None, ...]]:
        """Checkpoints of each method; equal ones are one training run."""
        first = [int(np.argmax(self.seeds == seed)) for seed in np.unique(self.seeds)]
        return [
            tuple(self.cells[part][method].checkpoint for part in first)
            for method in range(len(self.methods))
        ]

    @cached_property
    def originals(self) -> list[int]:
        """Index of the first method with the same scores on all prompts, for each method."""
        first: dict[bytes, int] = {}
        return [
            first.setdefault(self.scores[:, number].tobytes(), number)
            for number in range(len(self.methods))
        ]

    @cached_property
    def trained(self) -> list[int]:
        """Methods that were trained once per seed, each set of equal scores once."""
        return [
            number
            for number, runs in enumerate(self.runs)
            if len(set(runs)) == len(runs) > 1 and self.originals[number] == number
        ]

    @cached_property
    def variances(self) -> list[tuple[list[int], SeedVariances]]:
        """Groups of methods of `trained`, with how much their scores vary between seeds.

        Each group but the last evaluates the same checkpoints, so that its variances omit what
        these have in common. The last group contains all methods.
        """
        runs = [self.runs[method] for method in self.trained]
        groups = [[m for m in self.trained if self.runs[m] == one] for one in dict.fromkeys(runs)]
        found = [(group, seed_variances(self.by_seed[:, group])) for group in groups]
        return [*found, (self.trained, seed_variances(self.by_seed[:, self.trained], runs))]

    @cached_property
    def by_cluster(self) -> Numbers:
        """Each cluster's contribution to its method's mean, shape (clusters, m).

        A cluster's contributions average to 0; its prompts in several seeds are one observation.
        The contributions are scaled up because each part's mean was estimated: their mean square is
        the variance of a cluster.
        """
        scale = np.ones(len(self.parts))
        for number in range(len(self.cells)):
            mine = self.parts == number
            size = len(np.unique(self.clusters[mine]))
            scale[mine] = math.sqrt(size / max(1, size - 1))
        return self._summed(self.influence * scale[:, None], self.clusters)

    @cached_property
    def by_seed_and_cluster(self) -> Numbers | None:
        """`by_cluster` of each seed, shape (seeds, clusters, m).

        None if seeds have prompts of their own: their variance is part of that between seeds.
        """
        of_prompts, found = self.seeds[self.parts], []
        number = int(self.clusters.max()) + 1
        for seed in np.unique(self.seeds):
            mine = of_prompts == seed
            if len(np.unique(self.clusters[mine])) < number:
                return None
            share = len(self.seeds) * mine.sum() / ((self.seeds == seed).sum() * len(self.parts))
            found.append(self._summed(self.influence[mine], self.clusters[mine]) * share)
        return np.stack(found)

    def _summed(self, added: Numbers, clusters: NDArray[np.int64]) -> Numbers:
        # Sort before adding: a floating-point sum depends on its order.
        sums = np.empty((int(clusters.max()) + 1, added.shape[1]))
        for method, own in enumerate(added.T):
            order = np.argsort(own, kind="stable")
            sums[:, method] = np.bincount(clusters[order], weights=own[order], minlength=len(sums))
        return sums * len(sums) / len(added)

    def contrast(self, first: int, second: int) -> Contrast:
        """Return the difference of two methods with its uncertainty."""
        gaps = self.by_seed[:, first] - self.by_seed[:, second]
        value = _without_rounding(float(gaps.mean()), float(np.abs(self.values).max()))
        number = int(self.clusters.max()) + 1
        seed_error, freedom = self._seed_error(first, second)
        if not seed_error:
            added = self.by_cluster[:, first] - self.by_cluster[:, second]
            spread = math.sqrt(float((added**2).mean()) / number)
            return Contrast(
                value,
                number,
                _without_rounding(spread, float(np.abs(self.scores).max())),
                skewness(added),
                discordant=self._discordant(first, second),
            )
        return Contrast(
            value,
            number,
            self._added_error(first, second),
            seed_error=seed_error,
            seed_freedom=freedom,
            num_seeds=len(self.by_seed),
            is_crossed=self.by_seed_and_cluster is not None,
        )

    def apart(self, first: int, second: int) -> Numbers:
        """Return each cluster's mean difference of scores, without rounding errors (clusters,)."""
        gaps = np.bincount(self.clusters, weights=self.scores[:, first] - self.scores[:, second])
        scale = max(float(np.abs(self.scores).max()), 1e-300)
        return np.round(gaps / np.bincount(self.clusters) / scale, 12)

    def _seed_error(self, first: int, second: int) -> tuple[float, float]:
        """Return standard error and degrees of freedom from training seeds; (0, inf) without.

        Of the groups that contain both methods, the one with more degrees of freedom applies. It
        follows from the study's design, not from its scores. For methods that evaluate the same
        checkpoints the whole study's variances are too large rather than too small.
        """
        pair = [self.originals[method] for method in (first, second)]
        trained = [method for method in pair if method in self.trained]
        if not trained:
            return 0.0, math.inf
        if len(trained) == 1:
            methods, found = self.variances[-1]
            variances, freedom = found.alone, found.alone_freedom
        else:
            groups = [one for one in self.variances if {*trained} <= {*one[0]}]
            methods, found = max(groups, key=lambda one: one[1].paired_freedom)
            variances, freedom = found.paired, found.paired_freedom
        variance = sum(float(variances[methods.index(method)]) for method in trained)
        return math.sqrt(variance / len(self.by_seed)), freedom

    def _added_error(self, first: int, second: int) -> float:
        """Return the standard error from prompts beyond what the spread of the seeds contains."""
        added = self.by_seed_and_cluster
        if added is None or added.shape[1] < 2:
            return 0.0
        own = added[:, :, first] - added[:, :, second]
        of_prompts = own.mean(axis=0)
        num_seeds, number = own.shape
        rest = own - of_prompts - (own.mean(axis=1, keepdims=True) - own.mean())
        square_rest = float((rest**2).sum()) / ((num_seeds - 1) * (number - 1))
        square_prompts = num_seeds * float(of_prompts.var(ddof=1))
        return math.sqrt(max(0.0, square_prompts - square_rest) / own.size)

    def _discordant(self, first: int, second: int) -> tuple[int, int] | None:
        """Return how many prompts each method alone answers right.

        None unless all prompts are independent, count equally and are answered right or wrong.
        """
        ours, theirs = self.scores[:, first], self.scores[:, second]
        sizes = np.bincount(self.parts)
        if self.is_ratio or len(self.clusters) > self.clusters.max() + 1 or np.ptp(sizes):
            return None
        if not np.isin([ours, theirs], (0, 1)).all():
            return None
        return int((ours > theirs).sum()), int((ours < theirs).sum())


def aligned(
    cells: Sequence[Cell], parts: list[Part], methods: list[Method]
) -> Iterator[AlignedScores]:
    """Yield one `AlignedScores` per group of methods with equal prompts, metric and aggregation.

    Methods with an unfinished cell, or with a value that `aggregation_of` cannot explain, are
    omitted.
    """
    by_part = {(cell.method, *cell.part): cell for cell in cells}
    alike: dict[Any, list[list[Cell]]] = {}
    for method in methods:
        own = [by_part[method, *part] for part in parts]
        if all(cell.aggregation for cell in own):
            alike.setdefault(tuple(map(_comparable_by, own)), []).append(own)
    for group in alike.values():
        if len(group) > 1:
            yield _together([list(row) for row in zip(*group, strict=True)])


def _comparable_by(cell: Cell) -> tuple[Any, ...]:
    assert cell.scored is not None
    return cell.aggregation, cell.metric, cell.scored.samples.tobytes()


def _together(rows: list[list[Cell]]) -> AlignedScores:
    """Stack the scores of `rows[part][method]` into arrays."""
    names = [name for row in rows for name in row[0].clusters()]
    numbers: dict[Any, int] = {}
    return AlignedScores(
        [cell.method for cell in rows[0]],
        rows,
        np.array([row[0].seed for row in rows]),
        np.repeat(np.arange(len(rows)), [len(row[0].scored.scores) for row in rows]),  # type: ignore[union-attr]
        np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64),
        np.concatenate([_columns(row) for row in rows]),
    )


def _columns(row: list[Cell]) -> Numbers:
    return np.stack([cell.scored.scores for cell in row if cell.scored is not None], axis=1)


def _without_rounding(value: float, scale: float) -> float:
    """Return the value, or 0 if it is a rounding error of numbers of this size."""
    return 0.0 if abs(value) < 1e-12 * scale else value
