"""The comparisons of any two methods on the prompts that both were evaluated on.

A comparison covers one benchmark at one length, over the tasks and seeds planned for both methods;
all of these cells must be done. For a benchmark with several tasks, each task is also compared on
its own, but only with the base model. Perplexities are compared by their logarithms: training seeds
change a perplexity by a factor.

If a method was trained once per seed, the comparison generalises to other training seeds; a second
test, `on_checkpoints`, only to other prompts. With a single training run the second is all there
is, and `generalises_to` says so.

A study with `looks` tests each comparison over the seeds of the last look that both methods have
finished, at the level of this look. A comparison that a look has settled keeps the seeds of that
look. The levels are valid whatever decides at which look a comparison is tested. They therefore
also cover exploratory comparisons with methods that were dropped early.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from catalog import grouped
from catalog.comparisons.aligned import AlignedScores, Part, aligned
from catalog.comparisons.samples import BASE, Cell, Method, fields_of
from lce_core.statistics.contrasts import Contrast
from lce_core.statistics.power import look_levels

PRIMARY, SHORT_CONTEXT, EXPLORATORY = "primary", "short context", "exploratory"
SEEDS, ONE_RUN, PROMPTS = "training seeds", "one training run", "prompts"
"""Populations to which a comparison generalises: other training seeds; other prompts on the
checkpoints of a single training run; or other prompts, where neither method was trained."""

_SHARED = (
    *("study", "base_model", "benchmark", "profile", "eval_length", "metric", "is_default"),
    *("unit", "higher_is_better"),
)
_OWN = ("method", "exact_attention")
Row = dict[str, Any]
Pair = tuple[Method, Method]
Key = tuple[str, str, str, int, str | None, frozenset[Method]]
"""Study, base model, benchmark, length in tokens, metric (None: the default one) and the two
methods of a comparison."""
Margin = tuple[Method, str, float]
"""The method that is compared with the other one, the relation ("not worse" or "equal") and the
margin."""


@dataclass(frozen=True)
class Prediction:
    """A study's prediction about two methods on one benchmark at one length."""

    family: str = EXPLORATORY
    rank: int = 0
    """Place of the entry in the registered order of the primary family."""
    entry: int = 0
    """Place of the entry in today's study file; equal to `rank` if it was withdrawn."""
    weight: float | None = None
    """Share of 0.05 of the entry; None for a fixed sequence."""
    margins: tuple[Margin, ...] = ()
    amended: tuple[Margin, ...] = ()
    """Margins of amendments: judged like `margins`, but no later entry depends on the outcome."""


Predicted = Mapping[Key, Prediction]
NOTHING = Prediction()


@dataclass(frozen=True)
class Looks:
    """The looks of one study: numbers of seeds after which it tests its comparisons."""

    after: tuple[int, ...]
    """Number of seeds at each look, increasing; the last one is all seeds."""
    settled: dict[Key, int]
    """Number of seeds at the look that settled a comparison, for each settled comparison."""

    @cached_property
    def levels(self) -> list[float]:
        return look_levels(self.after)

    def parts(
        self, over: Set[Part], done: Set[Part], seeds: Sequence[int], most: int | None
    ) -> Set[Part]:
        """Return the parts up to the last look that is done, or up to look 1 if no look is done.

        `over` and `done` are the parts that are planned and done for both methods. `most` is the
        number of seeds of the look that settled the comparison; None if it is open.
        """
        for number in sorted(self.after, reverse=True):
            up_to = {part for part in over if part[1] in seeds[:number]}
            has_all = len({seed for _, seed in up_to}) == number and up_to <= done
            if has_all and number <= (most or number):
                return up_to
        return {part for part in over if part[1] in seeds[: self.after[0]]}


def compared_pairs(
    cells: Sequence[Cell], predicted: Predicted, looks: Looks | None
) -> Iterator[Compared]:
    """Yield the comparisons of a study and base model, each pair once.

    Other metrics than the default one are compared only where the study predicts it.
    """
    seeds = list(dict.fromkeys(cell.seed for cell in cells))
    for group in grouped(
        cells,
        # An unfinished cell has no metric unless an expectation names one.
        lambda c: (c.benchmark, c.profile, c.eval_length, None if c.is_default else c.metric),
    ).values():
        for parts, is_whole, pairs in _comparisons(group, looks, seeds):
            for one in _compare(group, parts, pairs):
                prediction = predicted.get(one.key) if is_whole else None
                if prediction or one.row["is_default"]:
                    row = {**one.row, "is_all_tasks": is_whole}
                    yield replace(one, row=row, prediction=prediction or NOTHING)


def _comparisons(
    cells: Sequence[Cell], looks: Looks | None, seeds: Sequence[int]
) -> Iterator[tuple[frozenset[Part], bool, list[Pair]]]:
    """Yield sets of (task, seed) with the pairs of methods to compare over exactly that set.

    The boolean is True if the set has all tasks that the two methods share. In a pair with the base
    model, the base model is second.
    """
    planned: dict[Method, set[Part]] = {}
    done: dict[Method, set[Part]] = {}
    for cell in cells:
        planned.setdefault(cell.method, set()).add(cell.part)
        if cell.aggregation is not None:
            done.setdefault(cell.method, set()).add(cell.part)
    where = (cells[0].study, cells[0].base_model, cells[0].benchmark, cells[0].eval_length)
    found: dict[tuple[frozenset[Part], bool], list[Pair]] = {}
    for first, second in combinations(planned, 2):
        pair = (second, first) if first == BASE else (first, second)
        over = frozenset(planned[first] & planned[second])
        if looks:
            both = done.get(first, set()) & done.get(second, set())
            metric = None if cells[0].is_default else cells[0].metric
            most = looks.settled.get((*where, metric, frozenset(pair)))
            over = frozenset(looks.parts(over, both, seeds, most))
        found.setdefault((over, True), []).append(pair)
        tasks = dict.fromkeys(task for task, _ in sorted(over))
        if pair[1] == BASE and len(tasks) > 1:
            for one in tasks:
                part = frozenset(part for part in over if part[0] == one)
                found.setdefault((part, False), []).append(pair)
    yield from ((over, is_whole, pairs) for (over, is_whole), pairs in found.items() if over)


@dataclass(frozen=True)
class Compared:
    """A row without the columns that depend on its family."""

    row: Row
    contrast: Contrast
    on_checkpoints: Contrast
    """The difference for other prompts, whatever `contrast` generalises to."""
    num_seeds: int
    """Number of the study's seeds that the comparison covers."""
    same_as: tuple[Any, ...]
    """Equal for comparisons of the same scores, which are counted once in their family."""
    is_mirrored: bool
    """True if the comparison that `same_as` stands for has the opposite sign."""
    is_ratio: bool
    """True if `contrast` is of logarithms."""
    prediction: Prediction = NOTHING

    @property
    def methods(self) -> list[Method]:
        row = self.row
        return [(row["method"], row["frozen"]), (row["other_method"], row["other_frozen"])]

    @property
    def key(self) -> Key:
        row = self.row
        where = row["study"], row["base_model"], row["benchmark"], row["eval_length"]
        return *where, None if row["is_default"] else row["metric"], frozenset(self.methods)

    def is_up(self, method: Method) -> bool:
        """Return True if a positive contrast means that `method` is better."""
        is_up: bool = (method == self.methods[0]) == self.row["higher_is_better"]
        return is_up

    @property
    def is_same(self) -> bool:
        return not self.row["num_better"] + self.row["num_worse"]


def _compare(
    cells: Sequence[Cell], parts: frozenset[Part], pairs: list[Pair]
) -> Iterator[Compared]:
    methods = list(dict.fromkeys(method for pair in pairs for method in pair))
    tasks = list(dict.fromkeys(one.task for one in cells if one.task in dict(parts)))
    for known in aligned(cells, sorted(parts), methods):
        place = {method: number for number, method in enumerate(known.methods)}
        same = {
            **fields_of(known.cells[0][0], *_SHARED),
            "task": tasks[0] if len(tasks) == 1 else None,
            "tasks": ", ".join(tasks),
        }
        for first, second in pairs:
            if first in place and second in place:
                yield _compared(known, same, place[first], place[second])


def _compared(known: AlignedScores, same: Row, one: int, other: int) -> Compared:
    cell, against = known.cells[0][one], known.cells[0][other]
    contrast = known.contrast(one, other)
    ours, theirs = known.by_seed[:, one], known.by_seed[:, other]
    value, other_value = float(ours.mean()), float(theirs.mean())
    seeds = ours - theirs
    if known.is_ratio:
        seeds = np.exp(ours) - np.exp(theirs)
        value, other_value = math.exp(value), math.exp(other_value)
    apart = known.apart(one, other)
    up = 1 if cell.higher_is_better else -1
    num_runs = len(set(zip(known.runs[one], known.runs[other], strict=True)))
    # Seeds that share the results of both methods have the same prompts: count these once.
    results = {(row[one].name, row[other].name): part for part, row in enumerate(known.cells)}
    row = {
        **same,
        **fields_of(cell, *_OWN),
        **{f"other_{name}": value for name, value in fields_of(against, *_OWN).items()},
        "value": value,
        "other_value": other_value,
        "difference": value - other_value if contrast.value else 0.0,
        "lowest": float(seeds.min()),
        "highest": float(seeds.max()),
        "generalises_to": (
            SEEDS
            if known.is_trained(one, other)
            else PROMPTS
            if cell.method[1] and against.method[1]
            else ONE_RUN
        ),
        "explained_by": ", ".join(known.explained_by(one, other)) or None,
        "num_clusters": contrast.num_clusters,
        "num_samples": int(np.isin(known.parts, [*results.values()]).sum()),
        "num_seeds": num_runs,
        "num_better": int((up * apart > 0).sum()),
        "num_worse": int((up * apart < 0).sum()),
    }
    originals = known.originals[one], known.originals[other]
    return Compared(
        row,
        contrast,
        known.on_checkpoints(one, other),
        len(seeds),
        (known, *sorted(originals)),
        originals[0] > originals[1],
        known.is_ratio,
    )
