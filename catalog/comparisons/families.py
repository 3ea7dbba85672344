"""Test the comparisons of methods within their families, and judge expected margins.

Each study and base model has three families of comparisons:

  primary        those that the study file predicted (`expects`) before the study's first result.
                 Its entries are tested in their order, each at 0.05 as long as all earlier ones are
                 decided; with weights, each at its share of 0.05 and what decided ones pass on
  short context  those with the base model within its trained context that every study makes
  exploratory    all others: few of the findings are false, but any one may be

Source: Maurer, Hothorn and Lehmacher 1995 (fixed sequence); Wiens 2003 (Pharmaceutical Statistics
2, 211-215: with weights).
"""

import bisect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from catalog import grouped
from catalog.comparisons.pairs import (
    EXPLORATORY,
    PRIMARY,
    SEEDS,
    Compared,
    Looks,
    Predicted,
    Prediction,
    Row,
    compared_pairs,
)
from catalog.comparisons.samples import Cell, Method
from lce_core.statistics.contrasts import Adjusted, Contrast, adjust, explore
from lce_core.statistics.power import ALPHA

_SCALES = {"accuracy": 1.0, "percent": 100.0}
"""Largest possible difference by unit."""


def paired_differences(
    cells: list[Cell], predicted: Predicted, looks: Mapping[str, Looks] | None = None
) -> Iterator[Row]:
    """Yield rows of `compared.paired_difference`: each pair once, the base model always second.

    The key `margins` of each row lists rows of `compared.margin`.
    """
    for where, of_model in grouped(cells, attrgetter("study", "base_model")).items():
        own = (looks or {}).get(where[0])
        found = list(compared_pairs(of_model, predicted, own))
        tested = {one.key for one in found if one.row["is_all_tasks"]}
        missing = [
            prediction
            for key, prediction in predicted.items()
            if key[:2] == where and key not in tested
        ]
        yield from _rows(found, missing, own)


def _rows(
    found: Sequence[Compared], missing: Sequence[Prediction], looks: Looks | None
) -> Iterator[Row]:
    has_seeds = any(one.row["generalises_to"] == SEEDS for one in found)
    main = _corrected(found, missing, looks)
    here = [replace(one, contrast=one.on_checkpoints) for one in found] if has_seeds else []
    # Without such a comparison `second` only has the right length.
    second = _corrected(here, missing, looks) if has_seeds else main
    for one, result, on_checkpoints in zip(found, main, second, strict=True):
        other = on_checkpoints if one.row["generalises_to"] == SEEDS else None
        low, high = _intervals(one, other)
        yield {
            **_row(one, result, looks),
            "checkpoints_p": other and other.p_value,
            "checkpoints_low": low,
            "checkpoints_high": high,
        }


@dataclass(frozen=True)
class _Result:
    """A comparison within its family."""

    p_value: float
    adjusted: Adjusted | None
    """Adjusted test; None if both methods have the same scores."""
    num_comparisons: int
    blocked_by: int | None = None
    """Today's place of the undecided entry before this one in the order; None if none is."""


def _corrected(
    found: Sequence[Compared], missing: Sequence[Prediction], looks: Looks | None
) -> list[_Result]:
    results: dict[int, _Result] = {}
    members: dict[tuple[str, int], list[int]] = {
        (one.family, one.rank): [] for one in missing if one.family != EXPLORATORY
    }
    for number, compared in enumerate(found):
        prediction = compared.prediction
        members.setdefault((prediction.family, prediction.rank), []).append(number)
    predictions = [*missing, *(one.prediction for one in found)]
    entries = {one.rank: one for one in predictions if one.family == PRIMARY}
    has_weights = any(one.weight is not None for one in entries.values())
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
            level = carried + (ALPHA * (entries[rank].weight or 0.0) if has_weights else 0.0)
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
                least = largest if largest > ALPHA and not untested else 1.0
                blocking = least, entries[rank].entry
        results.update(zip(numbers, entry, strict=True))
    return [results[number] for number in range(len(found))]


def _tested(
    family: Sequence[Compared],
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


def _is_decided(one: Compared, result: _Result) -> bool:
    """Return True if an entry's comparison lets the next entry of the order be tested."""
    if one.prediction.margins:
        return all(
            _margin_outcome(one, result, *it) != "undecided" for it in one.prediction.margins
        )
    return result.p_value <= ALPHA


def _row(one: Compared, result: _Result, looks: Looks | None) -> Row:
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
        "margins": [
            _margin(one, result, later, *each)
            for each in one.prediction.margins + one.prediction.amended
        ],
    }


def _intervals(one: Compared, result: _Result | None) -> tuple[float | None, float | None]:
    if result is None or result.adjusted is None:
        return None, None
    return _in_metric(one, result.adjusted.low), _in_metric(one, result.adjusted.high)


def _limit(one: Compared, margin: float) -> float:
    return math.log1p(margin) if one.is_ratio else margin


def _margin_outcome(
    one: Compared, result: _Result, method: Method, expected: str, margin: float
) -> str:
    """Return "confirmed" if the interval lies within the margin, "contradicted" if beyond."""
    if one.is_same:
        return "confirmed"
    found, limit = result.adjusted, _limit(one, margin)
    if found is None or found.low is None or found.high is None or result.blocked_by is not None:
        return "undecided"
    low, high = (found.low, found.high) if one.is_up(method) else (-found.high, -found.low)
    if low > -limit and (expected == "not worse" or high < limit):
        return "confirmed"
    is_beyond = high < -limit or (expected == "equal" and low > limit)
    return "contradicted" if is_beyond else "undecided"


def _margin(
    one: Compared, result: _Result, alpha: float, method: Method, expected: str, margin: float
) -> Row:
    other = one.methods[one.methods.index(method) - 1]
    gain = one.contrast if one.is_up(method) else -one.contrast
    limit = _limit(one, margin)
    bounds = [-limit]
    if expected == "equal":
        bounds = [-limit, limit] if abs(gain.value) < limit else [math.copysign(limit, gain.value)]
    where = ("study", "base_model", "benchmark", "profile", "eval_length", "metric")
    return {
        **{key: one.row[key] for key in where},
        **dict(zip(("method", "frozen"), method, strict=True)),
        **dict(zip(("other_method", "other_frozen"), other, strict=True)),
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


def _look_of(one: Compared, looks: Looks | None) -> _Look:
    if looks is None:
        return _Look()
    place = min(bisect.bisect_left(looks.after, one.num_seeds), len(looks.after) - 1)
    return _Look(looks.levels[place], place + 1, looks.after[place], looks.levels[-1])


def _within_scale(one: Compared, size: float | None) -> float | None:
    """Return a detectable difference in the metric; None beyond what the metric can show.

    An accuracy differs by at most 1. A perplexity twice the other's counts as diverged, not as a
    difference of methods.
    """
    if size is None or size > (
        math.log(2) if one.is_ratio else _SCALES.get(one.row["unit"], math.inf)
    ):
        return None
    return _in_metric(one, size)


def _in_metric(one: Compared, difference: float | None) -> float | None:
    """Convert a difference to the metric: keep accuracies within 1, and undo logarithms.

    From a difference d of logarithms: the other method's value times (exp(d) - 1).
    """
    if difference is None:
        return None
    if not one.is_ratio:
        return min(max(difference, -1.0), 1.0) if one.row["unit"] == "accuracy" else difference
    return float(one.row["other_value"] * math.expm1(min(difference, 700.0)))
