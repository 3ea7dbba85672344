"""Effective context length of each method, relative to its base model.

As in RULER, the threshold follows from the base model's score within its trained context. A method
holds a length if it keeps 90 % of that accuracy, or exceeds that perplexity by at most 10 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from catalog.comparisons.samples import BASE, Cell, grouped
from lce_core.statistics.effective_length import Threshold, effective_length

KEPT = 0.9
"""Fraction of the base model's accuracy that a method must keep."""
LOST = 1.1
"""Maximum perplexity of a method, as a multiple of the base model's."""


def effective_lengths(cells: list[Cell]) -> Iterator[dict[str, Any]]:
    """Yield a row of `compared.effective_length` per method and task with several done lengths."""
    for group in grouped(cells, lambda c: (c.study, c.base_model, c.benchmark, c.task, c.profile)):
        threshold = _threshold([cell for cell in group if cell.method == BASE])
        if threshold is None:
            continue
        for own in grouped(group, lambda c: c.method):
            by_length = _done(own)
            if len(by_length) > 1:
                yield _row(by_length, threshold)


def _done(own: list[Cell]) -> dict[int, list[Cell]]:
    """Return a method's cells by length, up to the first length with an unusable cell.

    A cell is unusable if it is not done, or if its value does not follow from its samples as the
    first cell's does.
    """
    found: dict[int, list[Cell]] = {}
    for cells in grouped(sorted(own, key=lambda c: c.eval_length), lambda c: c.eval_length):
        if any(
            cell.aggregation is None or cell.aggregation != own[0].aggregation for cell in cells
        ):
            break
        found[cells[0].eval_length] = cells
    return found


def _threshold(base: Sequence[Cell]) -> Threshold | None:
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
    first, scores = there[0], np.concatenate([_scores(one) for one in there])
    clusters = [name for one in there for name in one.clusters()]
    if first.higher_is_better:
        return Threshold(scores, longest, KEPT, clusters=clusters) if scores.mean() > 0 else None
    if first.unit == "nats" or first.aggregation == "power of mean":
        return Threshold(scores, longest, shift=math.log(LOST), clusters=clusters)
    return Threshold(scores, longest, LOST, clusters=clusters)


def _row(by_length: dict[int, list[Cell]], threshold: Threshold) -> dict[str, Any]:
    first = next(iter(by_length.values()))[0]
    assert first.higher_is_better is not None  # None only for unfinished cells
    found = effective_length(
        {
            length: np.concatenate([_scores(one) for one in own])
            for length, own in by_length.items()
        },
        threshold,
        clusters={
            at: [name for one in own for name in one.clusters()] for at, own in by_length.items()
        },
        higher_is_better=first.higher_is_better,
    )
    return {
        "study": first.study,
        "base_model": first.base_model,
        "method": first.method[0],
        "frozen": first.method[1],
        "exact_attention": first.exact_attention,
        "benchmark": first.benchmark,
        "task": first.task,
        "profile": first.profile,
        "tokens": found.tokens,
        "ci_low": found.low,
        "ci_high": found.high,
        "longest": found.longest,
        "num_lengths": len(by_length),
        "num_seeds": max(len({cell.name for cell in own}) for own in by_length.values()),
        "threshold": (
            math.exp(threshold.value) if first.aggregation == "power of mean" else threshold.value
        ),
        "unit": first.unit,
        "higher_is_better": first.higher_is_better,
    }


def _scores(cell: Cell) -> Any:
    assert cell.scored is not None
    scores = cell.scored.scores
    return np.exp(scores) if cell.aggregation == "mean of powers" else scores
