"""Rank agreement between perplexity and downstream scores, as in LCEG's Figure 4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from catalog.comparisons.samples import Cell, Method, grouped
from lce_core.statistics.holm import holm
from lce_core.statistics.rank_agreement import RankAgreement, perplexity_agreement

FEWEST = 3
"""Minimum number of methods for a rank correlation."""


def perplexity_agreements(cells: list[Cell]) -> Iterator[dict[str, Any]]:
    """Yield `compared.perplexity_agreement`: rows per benchmark and length that has perplexities.

    Holm's correction is applied to all rows of a study and base model together.
    """
    for of_model in grouped(cells, lambda c: (c.study, c.base_model)):
        rows = list(_rows(of_model))
        known = [row for row in rows if row["p_value"] is not None]
        adjusted = holm([row["p_value"] for row in known]).tolist() if known else []
        for row, p_adjusted in zip(known, adjusted, strict=True):
            row["p_adjusted"] = p_adjusted
        yield from rows


def _rows(cells: list[Cell]) -> Iterator[dict[str, Any]]:
    for planned in grouped(cells, lambda c: c.eval_length):
        # The alphabetically first benchmark with perplexities at a length orders the methods.
        texts = {cell.benchmark for cell in planned if cell.unit == "perplexity"}
        name = min(texts, default=None)
        losses = _means([cell for cell in planned if cell.benchmark == name])
        others = [cell for cell in planned if cell.benchmark not in texts]
        kind = {cell.method: (cell.exact_attention, cell.method_family) for cell in planned}
        for of_benchmark in grouped(others, lambda c: c.benchmark):
            scores = _means(of_benchmark)
            # Methods with equal scores, such as two names of one method, count once.
            both = {(losses[one], scores[one]): one for one in reversed(losses) if one in scores}
            methods = [one for one in losses if one in both.values()]
            up = any(cell.higher_is_better for cell in of_benchmark)  # None for unfinished cells
            if len(methods) < FEWEST or not up:
                continue
            found = perplexity_agreement(
                [losses[one] for one in methods],
                [scores[one] for one in methods],
                [kind[one][0] for one in methods],
                [kind[one][1] or one for one in methods],
            )
            yield {
                **_named(of_benchmark),
                "methods": "all",
                **_agreement(found.all_methods),
            }
            if not all(kind[one][0] for one in methods):
                columns = _agreement(found.exact_methods)
                yield {**_named(of_benchmark), "methods": "exact attention", **columns}


def _means(planned: Sequence[Cell]) -> dict[Method, float]:
    """Return each method's mean value over its cells.

    To compare like with like, methods are omitted if a cell is unfinished or if their set of tasks
    and seeds is not the one that most methods share.
    """
    by_method = {own[0].method: own for own in grouped(planned, lambda c: c.method)}
    sets = [_parts(own) for own in by_method.values()]
    usual = max(sets, key=sets.count, default=frozenset())
    return {
        method: float(np.mean([cell.value for cell in own if cell.value is not None]))
        for method, own in by_method.items()
        if _parts(own) == usual and all(cell.value is not None for cell in own)
    }


def _parts(own: Sequence[Cell]) -> frozenset[Any]:
    return frozenset((*cell.part, cell.profile) for cell in own)


def _named(planned: Sequence[Cell]) -> dict[str, Any]:
    first = planned[0]
    return {
        "study": first.study,
        "base_model": first.base_model,
        "benchmark": first.benchmark,
        "eval_length": first.eval_length,
    }


def _agreement(found: RankAgreement) -> dict[str, Any]:
    return {
        "num_methods": found.num_methods,
        "spearman": found.spearman.value,
        "spearman_low": found.spearman.low,
        "spearman_high": found.spearman.high,
        "kendall": found.kendall.value,
        "kendall_low": found.kendall.low,
        "kendall_high": found.kendall.high,
        "p_value": found.p_value,
        "p_adjusted": None,
    }
