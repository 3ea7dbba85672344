"""Scores of several methods on the same prompts, and the contrast of two of these methods.

`aligned` groups the cells of one benchmark and length by equal prompts, metric and aggregation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog import grouped
from catalog.comparisons.samples import Cell, Method
from lce_core.kinds import CONTROLS
from lce_core.statistics.contrasts import Contrast, skewness
from lce_core.statistics.power import ALPHA
from lce_core.statistics.sign_flips import Differences

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
    names: list[tuple[Any, ...]]
    """Name of each document, by its index in `clusters`."""
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
    def controls(self) -> dict[str, tuple[AlignedScores, AlignedScores]]:
        """Map each control to its own scores and to the prompts' scores minus these."""
        found = {}
        for name in CONTROLS if not self.is_ratio else ():
            scores = np.concatenate(
                [
                    np.stack([cell.scored.controls[name] for cell in row if cell.scored], axis=1)
                    for row in self.cells
                ]
            )
            if not np.isnan(scores).any():
                found[name] = self._with(scores), self._with(self.scores - scores)
        return found

    def _with(self, scores: Numbers) -> AlignedScores:
        means = [scores[self.parts == number].mean(axis=0) for number in range(len(self.cells))]
        cells = [
            [replace(cell, value=float(value)) for cell, value in zip(row, own, strict=True)]
            for row, own in zip(self.cells, means, strict=True)
        ]
        return replace(self, cells=cells, scores=scores)

    @cached_property
    def influence(self) -> Numbers:
        """Return how far each prompt lies from its part's mean, to first order, shape (n, m)."""
        added = np.empty_like(self.scores)
        for number, row in enumerate(self.cells):
            rows = self.parts == number
            scores = self.scores[rows]
            if row[0].aggregation == "mean of powers":
                scores = np.exp(scores - self.values[number])  # the mean's logarithm has slope 1
            added[rows] = scores - scores.mean(axis=0)
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
    def weights(self) -> Numbers:
        """Share of each prompt in the mean over parts, shape (n,)."""
        sizes = np.bincount(self.parts)
        return np.asarray(1 / (len(sizes) * sizes[self.parts]), dtype=np.float64)

    @cached_property
    def by_cluster(self) -> Numbers:
        """Each cluster's contribution to its method's mean, shape (clusters, m); they add up to it.

        A cluster's prompts in several seeds are one observation.
        """
        added = (self.values[self.parts] + self.influence) * self.weights[:, None]
        return _summed(added, self.clusters, len(self.names))

    @cached_property
    def by_seed_and_cluster(self) -> Numbers | None:
        """Return what each cluster adds to its method's mean in each seed (seeds, clusters, m).

        None if seeds have prompts of their own: their variance is part of that between seeds.
        """
        of_prompts, found, number = self.seeds[self.parts], [], len(self.names)
        for seed in np.unique(self.seeds):
            mine = of_prompts == seed
            if len(np.unique(self.clusters[mine])) < number:
                return None
            share = len(self.by_seed) * number
            added = self.influence[mine] * self.weights[mine, None] * share
            found.append(_summed(added, self.clusters[mine], number))
        return np.stack(found)

    @cached_property
    def strata(self) -> NDArray[np.int64]:
        """Index of each cluster's task, or its last one, shape (clusters,)."""
        tasks: dict[str, int] = {}
        numbers = [tasks.setdefault(row[0].task, len(tasks)) for row in self.cells]
        found = np.empty(len(self.names), dtype=np.int64)
        found[self.clusters] = np.array(numbers)[self.parts]
        return found

    def is_trained(self, first: int, second: int) -> bool:
        """Return True if one of the methods was trained once per seed, in two seeds or more."""
        return any(len({*self.runs[one]}) == len(self.runs[one]) > 1 for one in (first, second))

    def contrast(self, first: int, second: int) -> Contrast:
        """Return the difference of two methods for other training seeds.

        Without two training runs of a method, or any difference between seeds, it is
        `on_checkpoints`.
        """
        here = self.on_checkpoints(first, second)
        if not self.is_trained(first, second):
            return here
        gaps = self.by_seed[:, first] - self.by_seed[:, second]
        error = _without_rounding(
            float(gaps.std(ddof=1)), float(np.abs(self.values).max())
        ) / math.sqrt(len(gaps))
        is_crossed = self.by_seed_and_cluster is not None
        if not is_crossed:
            # Seeds differ at least as much as their prompts do.
            error = max(error, here.error_of_prompts)
        if not error:
            return here
        return Contrast(
            here.value,
            here.num_clusters,
            self._added_error(first, second),
            seed_error=error,
            seed_freedom=len(gaps) - 1,
            num_seeds=len(gaps),
            is_crossed=is_crossed,
        )

    def explained_by(self, first: int, second: int) -> list[str]:
        """Return the controls that explain the difference of two methods.

        On these control prompts the methods differ significantly in the same direction (p at most
        0.05), and nothing of the difference is sure to remain: the 95 % interval of the difference
        in score minus control score, prompt by prompt, reaches 0.
        """
        whole, found = self.contrast(first, second).value, []
        for name, (control, beyond) in self.controls.items():
            same, rest = control.contrast(first, second), beyond.contrast(first, second).interval()
            if same.value * whole > 0 and same.p_value() <= ALPHA and rest:
                reaches_zero = rest[0] <= 0 if whole > 0 else rest[1] >= 0
                found += [name] if reaches_zero else []
        return found

    def on_checkpoints(self, first: int, second: int) -> Contrast:
        """Return the difference of two methods for other prompts on the same checkpoints."""
        differences = Differences(
            self.names,
            self.by_cluster[:, first] - self.by_cluster[:, second],
            np.asarray(np.bincount(self.clusters, weights=self.weights), dtype=np.float64),
            self.strata,
        )
        value = _without_rounding(differences.value, float(np.abs(self.values).max()))
        error = _without_rounding(differences.error, float(np.abs(self.scores).max()))
        return Contrast(
            value,
            len(self.names),
            error,
            skewness(differences.residuals),
            cluster_freedom=differences.freedom,
            differences=differences,
            discordant=self._discordant(first, second),
        )

    def apart(self, first: int, second: int) -> Numbers:
        """Return each cluster's mean difference of scores, without rounding errors (clusters,)."""
        gaps = np.bincount(self.clusters, weights=self.scores[:, first] - self.scores[:, second])
        scale = max(float(np.abs(self.scores).max()), 1e-300)
        return np.round(gaps / np.bincount(self.clusters) / scale, 12)

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

    Methods with an unfinished cell or an unknown aggregation are omitted.
    """
    by_part = {(cell.method, *cell.part): cell for cell in cells}
    rows = ([by_part[method, *part] for part in parts] for method in methods)
    known = (own for own in rows if all(cell.aggregation for cell in own))
    for group in grouped(known, lambda own: tuple(map(_comparable_by, own))).values():
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
        [(rows[0][0].benchmark, *name) for name in numbers],
        np.concatenate(
            [np.stack([one.scored.scores for one in row if one.scored], axis=1) for row in rows]
        ),
    )


def _without_rounding(value: float, scale: float) -> float:
    """Return the value, or 0 if it is a rounding error of numbers of this size."""
    return 0.0 if abs(value) < 1e-12 * scale else value


def _summed(added: Numbers, clusters: NDArray[np.int64], number: int) -> Numbers:
    # Sort before adding: a floating-point sum depends on its order.
    sums = np.empty((number, added.shape[1]))
    for method, own in enumerate(added.T):
        order = np.argsort(own, kind="stable")
        sums[:, method] = np.bincount(clusters[order], weights=own[order], minlength=number)
    return sums
