"""Paired comparisons of all methods on the prompts that both were evaluated on.

A comparison covers one benchmark at one length, over the tasks and seeds planned for both methods;
all of these cells must be done. For a benchmark with several tasks, each task is also compared on
its own, but only with the base model: all pairs on all tasks would be ten times as many
comparisons, and the correction for multiple tests would hide more differences.

P-values come from tests over prompts. If there are several training runs, a separate interval
covers other training runs, because prompts of one run carry no information about another run.

Holm's correction is applied to two families per benchmark, task set and length: all methods against
the base model (does it help?), and all other pairs (which is better?).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.comparisons.samples import BASE, Cell, Method, grouped
from lce_core.statistics.holm import holm
from lce_core.statistics.paired import compared, intervals, is_binary
from lce_core.statistics.power import ALPHA, detectable_difference
from lce_core.statistics.seeds import mean_over_seeds

RESAMPLES = 2000
"""Bootstrap resamples of an interval; the intervals of single cells use the same number."""

Row = dict[str, Any]
Part = tuple[str, int]
Pair = tuple[Method, Method]
Numbers = NDArray[np.float64]


def paired_differences(cells: list[Cell]) -> Iterator[Row]:
    """Yield rows of `compared.paired_difference`: each pair once, the base model always second."""
    for group in grouped(
        cells, lambda c: (c.study, c.base_model, c.benchmark, c.profile, c.eval_length)
    ):
        rows = [
            row for parts, pairs in _comparisons(group) for row in _compare(group, parts, pairs)
        ]
        _adjust(rows)
        yield from rows


def _comparisons(cells: Sequence[Cell]) -> Iterator[tuple[frozenset[Part], list[Pair]]]:
    """Yield sets of (task, seed) with the pairs of methods to compare over exactly that set.

    In a pair with the base model, the base model is second.
    """
    planned: dict[Method, set[Part]] = {}
    for cell in cells:
        planned.setdefault(cell.method, set()).add(cell.part)
    found: dict[frozenset[Part], list[Pair]] = {}
    for first, second in combinations(planned, 2):
        pair = (second, first) if first == BASE else (first, second)
        over = frozenset(planned[first] & planned[second])
        found.setdefault(over, []).append(pair)
        tasks = dict.fromkeys(task for task, _ in sorted(over))
        if pair[1] == BASE and len(tasks) > 1:
            for one in tasks:
                part = frozenset(part for part in over if part[0] == one)
                found.setdefault(part, []).append(pair)
    yield from ((over, pairs) for over, pairs in found.items() if over)


@dataclass(frozen=True, eq=False)
class _Compared:
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

    @property
    def values(self) -> Numbers:
        """Each cell's default metric, shape (parts, m); a part is one task with one seed."""
        return np.array([[cell.value for cell in row] for row in self.cells], dtype=np.float64)

    def influence(self) -> Numbers:
        """Return each prompt's first-order contribution to its method's mean, shape (n, m).

        The contributions of a method average to 0. For perplexities (aggregation "power of
        mean") the slope of the exponential is the value itself.
        """
        added = np.empty_like(self.scores)
        sizes = np.bincount(self.parts)
        for number, row in enumerate(self.cells):
            rows = self.parts == number
            scores = self.scores[rows]
            if row[0].aggregation == "mean of powers":
                scores = np.exp(scores)
            one = scores - scores.mean(axis=0)
            if row[0].aggregation == "power of mean":
                one *= self.values[number]
            added[rows] = one * (len(self.parts) / (len(self.cells) * sizes[number]))
        return added


def _compare(cells: Sequence[Cell], parts: frozenset[Part], pairs: list[Pair]) -> Iterator[Row]:
    methods = list(dict.fromkeys(method for pair in pairs for method in pair))
    tasks = list(dict.fromkeys(one.task for one in cells if one.task in dict(parts)))
    for known in _aligned(cells, sorted(parts), methods):
        own = [pair for pair in pairs if set(pair) <= set(known.methods)]
        if own:
            yield from _compare_known(known, tasks, own)


def _compare_known(known: _Compared, tasks: list[str], pairs: list[Pair]) -> Iterator[Row]:
    place = {method: number for number, method in enumerate(known.methods)}
    first = np.array([place[one] for one, _ in pairs])
    second = np.array([place[other] for _, other in pairs])
    means, influence = known.values.mean(axis=0), known.influence()
    gaps = means[first] - means[second]
    found = intervals(
        gaps + influence[:, first] - influence[:, second], known.clusters, resamples=RESAMPLES
    )
    by_seed, runs = _by_seed(known), _runs(known)
    binary = [is_binary(known.scores[:, one]) for one in range(len(known.methods))]
    same = {**_shared_columns(known, tasks), "num_clusters": int(known.clusters.max()) + 1}
    for at, (one, other) in enumerate(zip(first, second, strict=True)):
        ours, theirs = known.scores[:, one], known.scores[:, other]
        gap = float(gaps[at])
        test, p_value, ahead, behind = compared(ours, theirs, known.clusters, gap)
        seeds = by_seed[:, one] - by_seed[:, other]
        num_runs = len(set(zip(runs[one], runs[other], strict=True)))
        added = influence[:, one] - influence[:, other]
        other_seeds = _over_seeds(known, seeds, added) if num_runs > 1 else (None, None)
        cell, against = known.cells[0][one], known.cells[0][other]
        up = cell.higher_is_better
        yield {
            **same,
            "method": cell.method[0],
            "frozen": cell.method[1],
            "exact_attention": cell.exact_attention,
            "other_method": against.method[0],
            "other_frozen": against.method[1],
            "other_exact_attention": against.exact_attention,
            "value": float(means[one]),
            "other_value": float(means[other]),
            "difference": gap,
            "ci_low": _number(found.low[at]),
            "ci_high": _number(found.high[at]),
            "lowest": float(seeds.min()),
            "highest": float(seeds.max()),
            "seeds_low": other_seeds[0],
            "seeds_high": other_seeds[1],
            "p_value": p_value,
            "test": test,
            "num_samples": len(ours) * num_runs // len(seeds),
            "num_seeds": num_runs,
            "num_better": ahead if up else behind,
            "num_worse": behind if up else ahead,
            "is_base": against.method == BASE,
            "error": _number(found.error[at]),
            "discordance": float((ours != theirs).mean())
            if binary[one] and binary[other]
            else None,
        }


def _aligned(
    cells: Sequence[Cell], parts: list[Part], methods: list[Method]
) -> Iterator[_Compared]:
    """Yield one `_Compared` per group of methods with equal prompts, metric and aggregation.

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


def _together(rows: list[list[Cell]]) -> _Compared:
    """Stack the scores of `rows[part][method]` into arrays."""
    names = [name for row in rows for name in row[0].clusters()]
    numbers: dict[Any, int] = {}
    return _Compared(
        [cell.method for cell in rows[0]],
        rows,
        np.array([row[0].seed for row in rows]),
        np.repeat(np.arange(len(rows)), [len(row[0].scored.scores) for row in rows]),  # type: ignore[union-attr]
        np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64),
        np.concatenate([_columns(row) for row in rows]),
    )


def _columns(row: list[Cell]) -> Numbers:
    return np.stack([cell.scored.scores for cell in row if cell.scored is not None], axis=1)


def _by_seed(known: _Compared) -> Numbers:
    """Return each method's mean over tasks for each seed, shape (seeds, m); seeds ascending."""
    seeds = known.seeds
    return np.stack([known.values[seeds == seed].mean(axis=0) for seed in np.unique(seeds)])


def _runs(known: _Compared) -> list[list[tuple[str | None, ...]]]:
    """Return `runs[method][seed]`, the tuple of that seed's cell ids.

    Equal tuples are one run: a cell that does not depend on the seed has the same id in all seeds.
    """
    seeds = known.seeds
    own = [np.flatnonzero(seeds == seed).tolist() for seed in np.unique(seeds)]
    return [
        [tuple(known.cells[part][method].name for part in parts) for parts in own]
        for method in range(len(known.methods))
    ]


def _over_seeds(
    known: _Compared, gaps: Numbers, added: Numbers
) -> tuple[float, float] | tuple[None, None]:
    """Return (low, high) of a difference, covering other seeds and other prompts.

    Returns (None, None) if there is no interval, or if all seeds should have the same prompts but
    do not.

    Args:
      known: names the seed and the document of each prompt.
      gaps: difference of the two methods in each seed, shape (seeds,).
      added: contribution of each prompt to the difference, from `_Compared.influence`, shape (n,).
    """
    of_prompts, documents, scores = known.seeds[known.parts], [], []
    for seed, gap in zip(np.unique(known.seeds), gaps, strict=True):
        mine = of_prompts == seed
        names, number = np.unique(known.clusters[mine], return_inverse=True)
        share = len(known.seeds) / (known.seeds == seed).sum() / len(added)
        documents.append(names)
        scores.append(gap + len(names) * share * np.bincount(number, weights=added[mine]))
    seeded = known.cells[0][0].seeded
    if not seeded and any(not np.array_equal(one, documents[0]) for one in documents):
        return None, None
    found = mean_over_seeds(scores, same_prompts=not seeded)
    return (None, None) if found.low is None or found.high is None else (found.low, found.high)


def _shared_columns(known: _Compared, tasks: list[str]) -> Row:
    """Return the columns that are equal for all pairs; `task` is None over several tasks."""
    cell = known.cells[0][0]
    return {
        "study": cell.study,
        "base_model": cell.base_model,
        "benchmark": cell.benchmark,
        "task": tasks[0] if len(tasks) == 1 else None,
        "tasks": ", ".join(tasks),
        "profile": cell.profile,
        "eval_length": cell.eval_length,
        "metric": cell.metric,
        "unit": cell.unit,
        "higher_is_better": cell.higher_is_better,
    }


def _adjust(rows: list[Row]) -> None:
    """Add Holm family, corrected p-value and smallest detectable difference to each row, in place.

    Removes the columns `is_base`, `error` and `discordance`, which only this computation needs.
    """
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(_family(row), []).append(row)
    for name, family in families.items():
        adjusted = holm([row["p_value"] for row in family])
        for row, p_holm in zip(family, adjusted.tolist(), strict=True):
            row["holm_family"], row["num_comparisons"] = name, len(family)
            row["p_holm"] = p_holm
            row["smallest_detectable"] = _smallest(row)


def _family(row: Row) -> str:
    against = "each with none" if row.pop("is_base") else "each with each, without none"
    return f"{row['benchmark']} ({row['tasks']}), {row['eval_length']} tokens: {against}"


def _smallest(row: Row) -> float | None:
    error, discordance = row.pop("error"), row.pop("discordance")
    if error is None:
        return None
    found = detectable_difference(
        [error],
        row["num_clusters"],
        alpha=ALPHA / row["num_comparisons"],
        discordance=None if discordance is None else [discordance],
    )
    return None if found is None else _number(found[0])


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
