"""Effective context length of each method, by three rules for the score that it must reach.

  kept    90 % of the base model's accuracy, or 110 % of its perplexity, at the longest evaluated
          length within its trained context
  ruler   an accuracy of 0.856, whatever the base model
  nolima  85 % of the method's own base score, its highest accuracy at a length within the base
          model's trained context. NoLiMa's base lengths are 250, 500 and 1,000 tokens

Source: Hsieh et al. 2024 (arXiv:2404.06654, section 4; RULER's score is the mean over 13 tasks);
Modarressi et al. 2025 (arXiv:2502.05167, section 4).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from catalog import grouped
from catalog.comparisons.samples import BASE, Cell, fields_of
from lce_core.statistics.effective_length import Scores, Threshold, effective_length

KEPT = 0.9
"""Fraction of the base model's accuracy that a method must keep, by the rule `kept`."""
LOST = 1.1
"""Maximum perplexity of a method, as a multiple of the base model's, by the rule `kept`."""
RULER = 0.856
"""Accuracy of Llama-2-7B at 4,096 tokens in RULER's Table 3."""
NOLIMA = 0.85
"""Fraction of a method's own base score that the method must keep, by the rule `nolima`."""
_AXES = ("study", "base_model", "benchmark", "task", "profile")


def effective_lengths(cells: list[Cell]) -> Iterator[dict[str, Any]]:
    """Yield the rows of `compared.effective_length`: one per method, task and rule.

    Methods with fewer than two done lengths have no row.
    """
    for group in grouped(cells, attrgetter(*_AXES)).values():
        kept = _kept([cell for cell in group if cell.method == BASE])
        for own in grouped(group, attrgetter("method")).values():
            own.sort(key=lambda c: c.eval_length)
            by_length = _done(own)
            if len(by_length) > 1:
                accuracy = own[0].unit == "accuracy"
                for rule, threshold in (
                    ("kept", kept),
                    ("ruler", RULER if accuracy else None),
                    ("nolima", _nolima(by_length) if accuracy else None),
                ):
                    if threshold is not None:
                        yield _row(by_length, threshold, rule)


def _done(own: list[Cell]) -> dict[int, list[Cell]]:
    """Return a method's cells by length, up to the first length with an unusable cell.

    `own` is sorted by length. A cell is unusable if it is not done, or if its value does not follow
    from its samples as the first cell's does.
    """
    found: dict[int, list[Cell]] = {}
    for length, cells in grouped(own, attrgetter("eval_length")).items():
        if any(
            cell.aggregation is None or cell.aggregation != own[0].aggregation for cell in cells
        ):
            break
        found[length] = cells
    return found


def _nolima(by_length: Mapping[int, list[Cell]]) -> Threshold | None:
    found = [
        Threshold(_all_scores(own), length, NOLIMA)
        for length, own in by_length.items()
        if length <= (own[0].trained_context or 0)
    ]
    best = max(found, key=lambda one: one.value, default=None)
    return best if best is not None and best.value > 0 else None


def _kept(base: Sequence[Cell]) -> Threshold | None:
    """Return the score that a method must reach (accuracy) or stay below (loss, perplexity).

    It follows from the base model's mean over seeds at the longest evaluated length within its
    trained context. None unless all seeds are done there; also None for an accuracy of 0, because
    every method would keep that at any length.
    """
    within = [one for one in base if one.eval_length <= (one.trained_context or 0)]
    longest = max((one.eval_length for one in within), default=0)
    there = [one for one in within if one.eval_length == longest]
    if not there or any(one.aggregation is None for one in there):
        return None
    first, scores = there[0], _all_scores(there)
    threshold = partial(Threshold, scores, longest)
    if first.higher_is_better:
        return threshold(factor=KEPT) if scores.values.mean() > 0 else None
    if first.unit == "nats" or first.aggregation == "power of mean":
        return threshold(shift=math.log(LOST))
    return threshold(factor=LOST)


def _row(
    by_length: dict[int, list[Cell]], threshold: Threshold | float, rule: str
) -> dict[str, Any]:
    first = next(iter(by_length.values()))[0]
    assert first.higher_is_better is not None  # None only for unfinished cells
    found = effective_length(
        {length: _all_scores(own) for length, own in by_length.items()},
        threshold,
        higher_is_better=first.higher_is_better,
    )
    value = threshold.value if isinstance(threshold, Threshold) else threshold
    return {
        **fields_of(first, "method", *_AXES, "exact_attention", "unit", "higher_is_better"),
        "tokens": found.tokens,
        "ci_low": found.low,
        "ci_high": found.high,
        "longest": found.longest,
        "num_lengths": len(by_length),
        "num_seeds": max(len({cell.name for cell in own}) for own in by_length.values()),
        "rule": rule,
        "threshold": math.exp(value) if first.aggregation == "power of mean" else value,
    }


def _all_scores(cells: Sequence[Cell]) -> Scores:
    return Scores(
        np.concatenate([cell.averaged for cell in cells]),
        clusters=[name for cell in cells for name in cell.clusters()],
        seeds=[cell.seed for cell in cells for _ in cell.averaged],
    )
