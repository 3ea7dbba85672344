"""Compare all methods with each other on the prompts that both were evaluated on.

A comparison covers one benchmark at one length, over the tasks and seeds planned for both methods;
all of these cells must be done. For a benchmark with several tasks, each task is also compared on
its own, but only with the base model: all pairs on all tasks would be ten times as many
comparisons, and the correction for multiple tests would hide more differences.

A difference generalises to other training seeds if at least one method was trained once per seed,
and otherwise to other prompts on these checkpoints (`lce_core.statistics.contrasts`). Perplexities
are compared by their logarithms: training seeds change a perplexity by a factor.

Each study and base model has three families of comparisons, each corrected for its size by Holm's
procedure: those that the study file predicted (`expects`) before the study's first result, those
with the base model within its trained context that every study makes, and all others, which are
exploratory.

A study with `looks` tests each comparison over the seeds of the last look that both methods have
finished, at the level of this look. A comparison that a look has settled keeps the seeds of that
look. The levels are valid whatever decides at which look a comparison is tested. They therefore
also cover exploratory comparisons with methods that were dropped early.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np

from catalog.comparisons.aligned import AlignedScores, Part, aligned
from catalog.comparisons.samples import BASE, Cell, Method, grouped
from lce_core.statistics.contrasts import Contrast, adjust
from lce_core.statistics.power import ALPHA
from lce_core.statistics.spending import look_levels

PRIMARY, SHORT_CONTEXT, EXPLORATORY = "primary", "short context", "exploratory"
"""Families of comparisons: those that the study file predicts, those with the base model within its
trained context that every study makes, and all others."""

Row = dict[str, Any]
Pair = tuple[Method, Method]
Key = tuple[str, str, str, int, frozenset[Method]]
"""Study, base model, benchmark, length in tokens and the two methods of a comparison."""


@dataclass
class Prediction:
    """A study's predictions about two methods on one benchmark at one length."""

    family: str = EXPLORATORY
    margins: list[tuple[Method, str, float]] = field(default_factory=list)
    """One tuple per prediction with a margin: the method that is compared with the other one, the
    relation ("not worse" or "equal") and the margin."""


Predicted = Mapping[Key, Prediction]
_NOTHING = Prediction()


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

        Args:
          over: parts that are planned for both methods.
          done: parts that are done for both methods.
          seeds: the study's seeds in the order in which they are computed.
          most: number of seeds of the look that settled the comparison; None if it is open.
        """
        for number in sorted(self.after, reverse=True):
            up_to = {part for part in over if part[1] in seeds[:number]}
            has_all = len({seed for _, seed in up_to}) == number and up_to <= done
            if has_all and number <= (most or number):
                return up_to
        return {part for part in over if part[1] in seeds[: self.after[0]]}


def paired_differences(
    cells: list[Cell], predicted: Predicted, looks: Mapping[str, Looks] | None = None
) -> Iterator[Row]:
    """Yield rows of `compared.paired_difference`: each pair once, the base model always second.

    The key `margins` of each row lists rows of `compared.margin`.

    Args:
      cells: the cells of any number of studies.
      predicted: what the studies predict.
      looks: the looks by study; a study without `looks` has no entry.
    """
    for of_model in grouped(cells, lambda c: (c.study, c.base_model)):
        where = (of_model[0].study, of_model[0].base_model)
        own, seeds = (looks or {}).get(where[0]), list(dict.fromkeys(c.seed for c in of_model))
        found = [
            compared
            for group in grouped(of_model, lambda c: (c.benchmark, c.profile, c.eval_length))
            for parts, is_whole, pairs in _comparisons(group, own, seeds)
            for compared in _compare(group, parts, is_whole, pairs)
        ]
        families: dict[str, list[_Compared]] = {}
        for one in found:
            families.setdefault(_prediction(one, predicted).family, []).append(one)
        tested = {one.key for one in found}
        untested = [
            prediction.family
            for key, prediction in predicted.items()
            if key[:2] == where and key not in tested
        ]
        for name, family in families.items():
            # With looks, Holm's correction also counts comparisons without a result, because others
            # may be settled before these are computed.
            num_untested = untested.count(name) if own and name != EXPLORATORY else 0
            for one, row, alpha in _adjusted(name, family, own, num_untested):
                margins = _prediction(one, predicted).margins
                yield {**row, "margins": [_margin(one, alpha, *each) for each in margins]}


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
            most = looks.settled.get((*where, frozenset(pair)))
            over = frozenset(looks.parts(over, both, seeds, most))
        found.setdefault((over, True), []).append(pair)
        tasks = dict.fromkeys(task for task, _ in sorted(over))
        if pair[1] == BASE and len(tasks) > 1:
            for one in tasks:
                part = frozenset(part for part in over if part[0] == one)
                found.setdefault((part, False), []).append(pair)
    yield from ((over, is_whole, pairs) for (over, is_whole), pairs in found.items() if over)


@dataclass(frozen=True)
class _Compared:
    """A row without the columns that depend on its family."""

    row: Row
    contrast: Contrast
    num_seeds: int
    """Number of the study's seeds that the comparison covers."""
    is_whole: bool
    """True if the comparison covers all tasks that the two methods share."""
    same_as: tuple[Any, ...]
    """Equal for comparisons of the same scores, which are counted once in their family."""
    is_mirrored: bool
    """True if the comparison that `same_as` stands for has the opposite sign."""
    is_ratio: bool
    """True if `contrast` is of logarithms."""

    @property
    def key(self) -> Key:
        row = self.row
        methods = [(row["method"], row["frozen"]), (row["other_method"], row["other_frozen"])]
        where = row["study"], row["base_model"], row["benchmark"], row["eval_length"]
        return *where, frozenset(methods)

    @property
    def is_same(self) -> bool:
        """True if both methods have the same scores."""
        return not self.row["num_better"] + self.row["num_worse"]


def _compare(
    cells: Sequence[Cell], parts: frozenset[Part], is_whole: bool, pairs: list[Pair]
) -> Iterator[_Compared]:
    planned: dict[Method, set[Part]] = {}
    for cell in cells:
        planned.setdefault(cell.method, set()).add(cell.part)
    # Pool the variances of all methods with these parts, even of those that a look compares
    # over more seeds.
    with_all = (method for method, own in planned.items() if parts <= own)
    methods = list(dict.fromkeys((*(method for pair in pairs for method in pair), *with_all)))
    tasks = list(dict.fromkeys(one.task for one in cells if one.task in dict(parts)))
    for known in aligned(cells, sorted(parts), methods):
        place = {method: number for number, method in enumerate(known.methods)}
        same = _shared_columns(known, tasks)
        for first, second in pairs:
            if first in place and second in place:
                yield _compared(known, same, is_whole, place[first], place[second])


def _compared(known: AlignedScores, same: Row, is_whole: bool, one: int, other: int) -> _Compared:
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
    row = {
        **same,
        "method": cell.method[0],
        "frozen": cell.method[1],
        "exact_attention": cell.exact_attention,
        "other_method": against.method[0],
        "other_frozen": against.method[1],
        "other_exact_attention": against.exact_attention,
        "value": value,
        "other_value": other_value,
        "difference": value - other_value if contrast.value else 0.0,
        "lowest": float(seeds.min()),
        "highest": float(seeds.max()),
        "generalises_to": "training seeds" if contrast.seed_error else "prompts",
        "num_clusters": contrast.num_clusters,
        "num_samples": len(known.scores) * num_runs // len(seeds),
        "num_seeds": num_runs,
        "num_better": int((up * apart > 0).sum()),
        "num_worse": int((up * apart < 0).sum()),
    }
    originals = known.originals[one], known.originals[other]
    return _Compared(
        row,
        contrast,
        len(seeds),
        is_whole,
        (known, *sorted(originals)),
        originals[0] > originals[1],
        known.is_ratio,
    )


def _shared_columns(known: AlignedScores, tasks: list[str]) -> Row:
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


def _prediction(one: _Compared, predicted: Predicted) -> Prediction:
    return predicted.get(one.key, _NOTHING) if one.is_whole else _NOTHING


def _adjusted(
    name: str, family: Sequence[_Compared], looks: Looks | None, num_untested: int
) -> Iterator[tuple[_Compared, Row, float]]:
    """Yield the rows of a family with corrected p-values and simultaneous intervals.

    The last element of each tuple is the probability of error with which further seeds or prompts
    would be tested (at the last look, if the study has looks). Comparisons of the same scores count
    once, and methods with equal scores are not compared.
    """
    distinct: dict[tuple[Any, ...], Contrast] = {}
    tested: dict[tuple[Any, ...], _Look] = {}
    for one in family:
        tested.setdefault(one.same_as, _look_of(one, looks))
        if not one.is_same:
            distinct.setdefault(one.same_as, -one.contrast if one.is_mirrored else one.contrast)
    levels = [tested[same].level for same in distinct]
    corrected = adjust(list(distinct.values()), levels, num_untested)
    adjusted = dict(zip(distinct, corrected, strict=True))
    number = len(distinct) + num_untested
    for one in family:
        found = adjusted.get(one.same_as)
        low, high = (None, None) if found is None else (found.low, found.high)
        if low is not None and high is not None and one.is_mirrored:
            low, high = -high, -low
        look = tested[one.same_as]
        alpha = look.level / max(1, number) if found is None else found.alpha
        later = alpha * look.last_level / look.level
        scaled = partial(_in_metric, one)
        is_open = found is not None and found.p_adjusted > ALPHA
        row = {
            **one.row,
            "ci_low": scaled(low),
            "ci_high": scaled(high),
            "p_value": one.contrast.p_value(),
            "p_adjusted": 1.0 if found is None else found.p_adjusted,
            "family": name,
            "num_comparisons": number,
            "smallest_detectable": scaled(one.contrast.detectable(alpha)),
            "num_needed": one.contrast.num_needed(later) if is_open else None,
            "look": look.number,
            "look_seeds": look.num_seeds,
            "level": look.level,
        }
        yield one, row, later


def _margin(one: _Compared, alpha: float, method: Method, expected: str, margin: float) -> Row:
    """Return a row of `compared.margin`."""
    row = one.row
    methods = [(row["method"], row["frozen"]), (row["other_method"], row["other_frozen"])]
    other = methods[methods.index(method) - 1]
    is_first = method == methods[0]
    # Positive if `method` is better.
    gain = one.contrast if is_first == row["higher_is_better"] else -one.contrast
    limit = math.log1p(margin) if one.is_ratio else margin
    bounds = [-limit]
    if expected == "equal":
        bounds = [-limit, limit] if abs(gain.value) < limit else [math.copysign(limit, gain.value)]
    where = ("study", "base_model", "benchmark", "profile", "eval_length")
    return {
        **{key: row[key] for key in where},
        "method": method[0],
        "frozen": method[1],
        "other_method": other[0],
        "other_frozen": other[1],
        "expected": expected,
        "margin": margin,
        "num_needed": gain.num_needed(alpha, bounds),
    }


@dataclass(frozen=True)
class _Look:
    """The look at which a comparison is tested."""

    level: float = ALPHA
    number: int | None = None
    """Number of the look, counted from 1; None in a study without looks."""
    num_seeds: int | None = None
    last_level: float = ALPHA
    """Level of the study's last look."""


def _look_of(one: _Compared, looks: Looks | None) -> _Look:
    if looks is None:
        return _Look()
    place = min(bisect.bisect_left(looks.after, one.num_seeds), len(looks.after) - 1)
    return _Look(looks.levels[place], place + 1, looks.after[place], looks.levels[-1])


def _in_metric(one: _Compared, difference: float | None) -> float | None:
    """Convert a difference to the metric: keep accuracies within 1, and undo logarithms.

    A difference of logarithms becomes one from the other method's value, which is taken as fixed.
    """
    if difference is None:
        return None
    if not one.is_ratio:
        return min(max(difference, -1.0), 1.0) if one.row["unit"] == "accuracy" else difference
    return float(one.row["other_value"] * math.expm1(min(difference, 700.0)))
