"""Compare all methods with each other on the prompts that both were evaluated on.

A comparison covers one benchmark at one length, over the tasks and seeds planned for both methods;
all of these cells must be done. For a benchmark with several tasks, each task is also compared on
its own, but only with the base model. Perplexities are compared by their logarithms: training seeds
change a perplexity by a factor.

If a method was trained once per seed, the comparison generalises to other training seeds; a second
test, `on_checkpoints`, only to other prompts. With a single training run the second is all there
is, and `generalises_to` says so.

Each study and base model has three families of comparisons:

  primary        those that the study file predicted (`expects`) before the study's first result.
                 Its entries are tested in their order, each at 0.05 as long as all earlier ones are
                 decided; with weights, each at its share of 0.05 and what decided ones pass on
  short context  those with the base model within its trained context that every study makes
  exploratory    all others: few of the findings are false, but any one may be

A study with `looks` tests each comparison over the seeds of the last look that both methods have
finished, at the level of this look. A comparison that a look has settled keeps the seeds of that
look. The levels are valid whatever decides at which look a comparison is tested. They therefore
also cover exploratory comparisons with methods that were dropped early.

Source: Maurer, Hothorn and Lehmacher 1995 (fixed sequence); Wiens 2003 (Pharmaceutical Statistics
2, 211-215: with weights).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np

from catalog.comparisons.aligned import AlignedScores, Part, aligned
from catalog.comparisons.samples import BASE, Cell, Method, grouped
from lce_core.statistics.contrasts import Adjusted, Contrast, adjust, explore
from lce_core.statistics.power import ALPHA
from lce_core.statistics.significance import look_levels

PRIMARY, SHORT_CONTEXT, EXPLORATORY = "primary", "short context", "exploratory"
SEEDS, ONE_RUN, PROMPTS = "training seeds", "one training run", "prompts"
"""What a comparison generalises to: other training seeds; other prompts on the checkpoints of a
single training run; or other prompts, where neither method was trained."""

Row = dict[str, Any]
Pair = tuple[Method, Method]
Key = tuple[str, str, str, int, str | None, frozenset[Method]]
"""Study, base model, benchmark, length in tokens, metric (None: the default one) and the two
methods of a comparison."""


@dataclass(frozen=True)
class Prediction:
    """A study's prediction about two methods on one benchmark at one length."""

    family: str = EXPLORATORY
    rank: int = 0
    """Place of the entry in the registered order of the primary family."""
    weight: float | None = None
    """Share of 0.05 of the entry; None for a fixed sequence."""
    margins: tuple[tuple[Method, str, float], ...] = ()
    """One tuple per prediction with a margin: the method that is compared with the other one, the
    relation ("not worse" or "equal") and the margin."""


Predicted = Mapping[Key, Prediction]
_SCALES = {"accuracy": 1.0, "percent": 100.0}
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
            for group in grouped(
                of_model,
                # An unfinished cell has no metric unless an expectation names one.
                lambda c: (
                    c.benchmark,
                    c.profile,
                    c.eval_length,
                    None if c.is_default else c.metric,
                ),
            )
            for parts, is_whole, pairs in _comparisons(group, own, seeds)
            for compared in _compare(group, parts, is_whole, pairs)
        ]
        # Other metrics than the default one are compared only where the study predicts it.
        found = [
            replace(one, prediction=_prediction(one, predicted))
            for one in found
            if one.row["is_default"] or _prediction(one, predicted) is not _NOTHING
        ]
        tested = {one.key for one in found}
        missing = [
            prediction
            for key, prediction in predicted.items()
            if key[:2] == where and key not in tested
        ]
        yield from _rows(found, missing, own)


def _rows(
    found: Sequence[_Compared], missing: Sequence[Prediction], looks: Looks | None
) -> Iterator[Row]:
    """Yield the rows of a study and base model, corrected within their families."""
    has_seeds = any(one.row["generalises_to"] == SEEDS for one in found)
    main = _corrected(found, missing, looks)
    here = [replace(one, contrast=one.on_checkpoints) for one in found] if has_seeds else []
    second = _corrected(here, missing, looks) if here else [None] * len(found)
    for one, result, checkpoints in zip(found, main, second, strict=True):
        row = _row(one, result, looks)
        is_known = checkpoints is not None and row["generalises_to"] == SEEDS
        other = _intervals(one, checkpoints if is_known else None)
        yield {
            **row,
            "checkpoints_p": checkpoints.p_value if is_known and checkpoints else None,
            "checkpoints_low": other[0],
            "checkpoints_high": other[1],
        }


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
class _Compared:
    """A row without the columns that depend on its family."""

    row: Row
    contrast: Contrast
    on_checkpoints: Contrast
    """The difference for other prompts, whatever `contrast` generalises to."""
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
    prediction: Prediction = _NOTHING

    @property
    def methods(self) -> list[Method]:
        row = self.row
        return [(row["method"], row["frozen"]), (row["other_method"], row["other_frozen"])]

    @property
    def key(self) -> Key:
        row = self.row
        where = row["study"], row["base_model"], row["benchmark"], row["eval_length"]
        return *where, None if row["is_default"] else row["metric"], frozenset(self.methods)

    @property
    def is_same(self) -> bool:
        """True if both methods have the same scores."""
        return not self.row["num_better"] + self.row["num_worse"]


def _compare(
    cells: Sequence[Cell], parts: frozenset[Part], is_whole: bool, pairs: list[Pair]
) -> Iterator[_Compared]:
    methods = list(dict.fromkeys(method for pair in pairs for method in pair))
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
        "generalises_to": (
            SEEDS
            if known.is_trained(one, other)
            else PROMPTS
            if cell.method[1] and against.method[1]
            else ONE_RUN
        ),
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
        known.on_checkpoints(one, other),
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
        "is_default": cell.is_default,
        "unit": cell.unit,
        "higher_is_better": cell.higher_is_better,
    }


def _prediction(one: _Compared, predicted: Predicted) -> Prediction:
    return predicted.get(one.key, _NOTHING) if one.is_whole else _NOTHING


@dataclass(frozen=True)
class _Result:
    """A comparison within its family."""

    p_value: float
    adjusted: Adjusted | None
    """None if both methods have the same scores."""
    num_comparisons: int
    blocked_by: int | None = None
    """Rank of the undecided entry that stands before this one in the order; None if none does."""


def _corrected(
    found: Sequence[_Compared], missing: Sequence[Prediction], looks: Looks | None
) -> list[_Result]:
    """Correct comparisons within their families, in the order of `found`."""
    results: dict[int, _Result] = {}
    members: dict[tuple[str, int], list[int]] = {}
    weights: dict[int, float | None] = {}
    for one in missing:
        if one.family != EXPLORATORY:
            members.setdefault((one.family, one.rank), [])
            weights.setdefault(one.rank, one.weight)
    for number, compared in enumerate(found):
        prediction = compared.prediction
        members.setdefault((prediction.family, prediction.rank), []).append(number)
        if prediction.family == PRIMARY:
            weights.setdefault(prediction.rank, prediction.weight)
    has_weights = any(weight is not None for weight in weights.values())
    blocking: tuple[float, int] | None = None
    carried = 0.0 if has_weights else ALPHA
    for (family, rank), numbers in sorted(members.items()):
        own = [found[number] for number in numbers]
        if family == EXPLORATORY:
            results.update(zip(numbers, _tested(own, looks, explore), strict=True))
            continue
        # With looks, the correction also counts comparisons without a result, because others may be
        # settled before these are computed.
        untested = sum((one.family, one.rank) == (family, rank) for one in missing)
        level = ALPHA
        if family == PRIMARY:
            level = carried + (ALPHA * (weights[rank] or 0.0) if has_weights else 0.0)
        num_open = untested if looks else 0
        correct = partial(adjust, alpha=level or ALPHA, num_untested=num_open)
        entry = _tested(own, looks, correct, num_open)
        if family == PRIMARY:
            if not level and blocking:
                entry = [
                    replace(one, p_value=max(one.p_value, blocking[0]), blocked_by=blocking[1])
                    for one in entry
                ]
            holds = not untested and all(map(_is_decided, own, entry))
            carried = level if holds else 0.0
            if not holds and level:
                # An undecided margin may have a small p-value for the hypothesis of no difference.
                largest = max((one.p_value for one in entry), default=1.0)
                blocking = largest if largest > ALPHA and not untested else 1.0, rank
        results.update(zip(numbers, entry, strict=True))
    return [results[number] for number in range(len(found))]


def _tested(
    family: Sequence[_Compared],
    looks: Looks | None,
    correct: Callable[[list[Contrast], list[float]], list[Adjusted]],
    num_untested: int = 0,
) -> list[_Result]:
    """Correct one family, in which comparisons of the same scores count once."""
    distinct: dict[Any, tuple[Contrast, float]] = {}
    for one in family:
        if not one.is_same:
            contrast = -one.contrast if one.is_mirrored else one.contrast
            distinct.setdefault(one.same_as, (contrast, _look_of(one, looks).level))
    contrasts, levels = [one for one, _ in distinct.values()], [two for _, two in distinct.values()]
    corrected = dict(zip(distinct, correct(contrasts, levels), strict=True))
    results = []
    for one in family:
        found = None if one.is_same else corrected[one.same_as]
        if found is not None and one.is_mirrored:
            low = None if found.high is None else -found.high
            high = None if found.low is None else -found.low
            found = replace(found, low=low, high=high)
        p_value = 1.0 if found is None else found.p_adjusted
        results.append(_Result(p_value, found, len(corrected) + num_untested))
    return results


def _is_decided(one: _Compared, result: _Result) -> bool:
    """Return True if an entry's comparison lets the next entry of the order be tested."""
    if one.prediction.margins:
        return all(
            _margin_outcome(one, result, *it) != "undecided" for it in one.prediction.margins
        )
    return result.p_value <= ALPHA


def _row(one: _Compared, result: _Result, looks: Looks | None) -> Row:
    """Return a row of `compared.paired_difference`, with rows of `compared.margin` as `margins`."""
    look, found = _look_of(one, looks), result.adjusted
    alpha = look.level / max(1, result.num_comparisons) if found is None else found.alpha
    later = alpha * look.last_level / look.level
    is_open = found is not None and result.p_value > ALPHA
    low, high = _intervals(one, result)
    return {
        **one.row,
        "ci_low": low,
        "ci_high": high,
        "p_value": one.contrast.p_value(),
        "p_adjusted": result.p_value,
        "family": one.prediction.family,
        "num_comparisons": result.num_comparisons,
        "rank": one.prediction.rank if one.prediction.family == PRIMARY else None,
        "blocked_by": result.blocked_by,
        "skewness": one.contrast.skewness,
        "smallest_detectable": _within_scale(one, one.contrast.detectable(alpha)),
        "num_needed": one.contrast.num_needed(later) if is_open else None,
        "look": look.number,
        "look_seeds": look.num_seeds,
        "level": look.level,
        "margins": [_margin(one, result, later, *each) for each in one.prediction.margins],
    }


def _intervals(one: _Compared, result: _Result | None) -> tuple[float | None, float | None]:
    if result is None or result.adjusted is None:
        return None, None
    return _in_metric(one, result.adjusted.low), _in_metric(one, result.adjusted.high)


def _gain(one: _Compared, method: Method) -> Contrast:
    """Return the contrast with a positive value if `method` is better."""
    is_first = method == one.methods[0]
    return one.contrast if is_first == one.row["higher_is_better"] else -one.contrast


def _limit(one: _Compared, margin: float) -> float:
    return math.log1p(margin) if one.is_ratio else margin


def _margin_outcome(
    one: _Compared, result: _Result, method: Method, expected: str, margin: float
) -> str:
    """Return "confirmed" if the interval lies within the margin, "contradicted" if beyond."""
    if one.is_same:
        return "confirmed"
    found, limit = result.adjusted, _limit(one, margin)
    if found is None or found.low is None or found.high is None or result.blocked_by is not None:
        return "undecided"
    is_up = (method == one.methods[0]) == one.row["higher_is_better"]
    low, high = (found.low, found.high) if is_up else (-found.high, -found.low)
    if low > -limit and (expected == "not worse" or high < limit):
        return "confirmed"
    is_beyond = high < -limit or (expected == "equal" and low > limit)
    return "contradicted" if is_beyond else "undecided"


def _margin(
    one: _Compared, result: _Result, alpha: float, method: Method, expected: str, margin: float
) -> Row:
    """Return a row of `compared.margin`."""
    other = one.methods[one.methods.index(method) - 1]
    gain, limit = _gain(one, method), _limit(one, margin)
    bounds = [-limit]
    if expected == "equal":
        bounds = [-limit, limit] if abs(gain.value) < limit else [math.copysign(limit, gain.value)]
    where = ("study", "base_model", "benchmark", "profile", "eval_length", "metric")
    return {
        **{key: one.row[key] for key in where},
        "method": method[0],
        "frozen": method[1],
        "other_method": other[0],
        "other_frozen": other[1],
        "expected": expected,
        "margin": margin,
        "outcome": _margin_outcome(one, result, method, expected, margin),
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


def _within_scale(one: _Compared, size: float | None) -> float | None:
    """Return a detectable difference in the metric; None beyond what the metric can show.

    An accuracy differs by at most 1. A perplexity twice the other's counts as diverged, not as a
    difference of methods.
    """
    if size is None or size > (
        math.log(2) if one.is_ratio else _SCALES.get(one.row["unit"], math.inf)
    ):
        return None
    return _in_metric(one, size)


def _in_metric(one: _Compared, difference: float | None) -> float | None:
    """Convert a difference to the metric: keep accuracies within 1, and undo logarithms.

    A difference of logarithms becomes one from the other method's value, which is taken as fixed.
    """
    if difference is None:
        return None
    if not one.is_ratio:
        return min(max(difference, -1.0), 1.0) if one.row["unit"] == "accuracy" else difference
    return float(one.row["other_value"] * math.expm1(min(difference, 700.0)))
