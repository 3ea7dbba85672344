"""Rank agreement: of perplexity and downstream scores (LCEG's Figure 4), and of papers and ours.

`perplexity_agreements` describes every benchmark and length, over methods as a sample of methods.
`predictions` tests what a study registered (`predicts`), over other documents for these methods:
Kendall's tau over the methods within each document, and its mean over documents.
`paper_agreements` compares our order of methods with the printed one.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import duckdb
import numpy as np
from scipy.stats import kendalltau, rankdata

from catalog import grouped
from catalog.comparisons.samples import Cell, Method, fields_of
from lce_core.statistics.contrasts import (
    FEWEST_CLUSTERS,
    Adjusted,
    Contrast,
    adjust,
    explore,
    skewness,
)
from lce_core.statistics.power import ALPHA, holm
from lce_core.statistics.rank_agreement import (
    RankAgreement,
    perplexity_agreement,
    rank_agreement,
)
from lce_core.statistics.sign_flips import Differences
from lce_core.study.variants import variant_name

FEWEST = 3
"""Minimum number of methods for a rank correlation."""
_PLACE = ("study", "base_model", "benchmark", "eval_length")


def perplexity_agreements(cells: list[Cell]) -> Iterator[dict[str, Any]]:
    """Yield `compared.perplexity_agreement`: rows per benchmark and length that has perplexities.

    Holm's correction is applied to all rows of a study and base model together.
    """
    for of_model in grouped(cells, attrgetter("study", "base_model")).values():
        rows = list(_rows(of_model))
        known = [row for row in rows if row["p_value"] is not None]
        adjusted = holm([row["p_value"] for row in known]).tolist() if known else []
        for row, p_adjusted in zip(known, adjusted, strict=True):
            row["p_adjusted"] = p_adjusted
        yield from rows


_COLUMN = ("study", "base_model", "paper", "place", "benchmark", "task", "eval_length")
"""Columns that identify one column of a printed table; the first four identify the table."""
_FIGURES = f"""
    SELECT {", ".join(_COLUMN)}, method, frozen,
        best_first(value, higher_is_better), best_first(paper_value, higher_is_better)
    FROM paper_comparison
    WHERE rank IS NOT NULL
"""


def paper_agreements(connection: duckdb.DuckDBPyConnection) -> Iterator[dict[str, Any]]:
    """Yield rows of `compared.paper_agreement`: one per column of a printed table, one per table.

    A table with several columns is compared by the mean rank of each method over its columns.
    """
    rows = connection.execute(_FIGURES).fetchall()
    for place, table in grouped(rows, 0, 1, 2, 3).items():
        columns = {
            column: [((method, frozen), ours, printed) for *_, method, frozen, ours, printed in own]
            for column, own in grouped(table, 4, 5, 6).items()
            if len(own) >= FEWEST
        }
        points = {column: [figure[1:] for figure in own] for column, own in columns.items()}
        if len(columns) > 1:
            points[None, None, None] = _mean_ranks([*columns.values()])
        for column, own in points.items():
            if len(own) >= FEWEST:
                ours, printed = np.array(own, dtype=np.float64).T
                yield {
                    **dict(zip(_COLUMN, (*place, *column), strict=True)),
                    "num_columns": 1 if column[0] else len(columns),
                    **_agreement(rank_agreement(ours, printed)),
                }


def _mean_ranks(columns: Sequence[Sequence[tuple[Method, float, float]]]) -> list[Any]:
    """Return our mean rank and the printed one of each method that has figures in all columns."""
    shared = set.intersection(*({method for method, _, _ in own} for own in columns))
    ranks: dict[Method, list[Any]] = {}
    for column in columns:
        own = [figure for figure in column if figure[0] in shared]
        both = rankdata([figure[1:] for figure in own], axis=0)
        for (method, _, _), pair in zip(own, both, strict=True):
            ranks.setdefault(method, []).append(pair)
    return [np.mean(pairs, axis=0) for pairs in ranks.values()]


def _rows(cells: list[Cell]) -> Iterator[dict[str, Any]]:
    for planned in grouped(cells, attrgetter("eval_length")).values():
        # The alphabetically first benchmark with perplexities at a length orders the methods.
        texts = {cell.benchmark for cell in planned if cell.unit == "perplexity"}
        name = min(texts, default=None)
        losses = _means([cell for cell in planned if cell.benchmark == name])
        others = [cell for cell in planned if cell.benchmark not in texts]
        kind = {cell.method: (cell.exact_attention, cell.method_family) for cell in planned}
        for of_benchmark in grouped(others, attrgetter("benchmark")).values():
            scores = _means(of_benchmark)
            # Methods with equal scores, such as two names of one method, count once.
            both = {(losses[one], scores[one]): one for one in reversed(losses) if one in scores}
            methods = [one for one in losses if one in both.values()]
            up = any(cell.higher_is_better for cell in of_benchmark)  # None for unfinished cells
            if len(methods) < FEWEST or not up:
                continue
            of_all, of_exact = perplexity_agreement(
                [losses[one] for one in methods],
                [scores[one] for one in methods],
                [kind[one][0] for one in methods],
                [kind[one][1] or one for one in methods],
            )
            where = fields_of(of_benchmark[0], *_PLACE)
            yield {**where, "methods": "all", **_tested(of_all)}
            if not all(kind[one][0] for one in methods):
                yield {**where, "methods": "exact attention", **_tested(of_exact)}


@dataclass(frozen=True)
class Predicts:
    """An entry of `expects` with `predicts`, at one length."""

    study: str
    base_model: str
    benchmark: str
    eval_length: int
    metric: str | None
    among: tuple[Method, ...] | None
    """Methods that perplexity orders; None: those with exact attention, or all if these are fewer
    than `FEWEST`."""
    is_registered: bool


def predictions(cells: list[Cell], asked: Sequence[Predicts]) -> Iterator[dict[str, Any]]:
    """Yield rows of `compared.prediction`; the registered ones of a study are one family.

    With the losses of the same documents at hand (a benchmark that measures both), each document
    has its own order of losses; otherwise all have that of the mean losses.
    """
    tested = [(one, *found) for one in asked if (found := _within_documents(cells, one))]
    family_of = attrgetter("study", "base_model", "is_registered")
    for (_, _, is_registered), family in grouped(tested, lambda one: family_of(one[0])).items():
        contrasts = [contrast for _, contrast, *_ in family]
        corrected = (
            adjust(contrasts) if is_registered else explore(contrasts, [ALPHA] * len(contrasts))
        )
        for (one, contrast, number, is_one_run), adjusted in zip(family, corrected, strict=True):
            yield {
                **fields_of(one, *_PLACE, "metric"),
                "among": one.among and [variant_name(*method) for method in one.among],
                "tau": contrast.value,
                "ci_low": None if adjusted.low is None else max(-1.0, adjusted.low),
                "ci_high": None if adjusted.high is None else min(1.0, adjusted.high),
                "p_adjusted": adjusted.p_adjusted,
                "num_methods": number,
                "num_clusters": contrast.num_clusters,
                "outcome": _outcome(contrast, adjusted, is_one_run),
            }


def _outcome(contrast: Contrast, adjusted: Adjusted, is_one_run: bool) -> str:
    if contrast.num_clusters < FEWEST_CLUSTERS:
        return "too few"
    if adjusted.p_adjusted > ALPHA:
        return "undecided"
    if is_one_run:
        return "on one training run"
    return "confirmed" if contrast.value > 0 else "contradicted"


def _within_documents(cells: list[Cell], one: Predicts) -> tuple[Contrast, int, bool] | None:
    """Return the mean of tau over documents, and the number of methods; None if not measured.

    The boolean is True if one of the methods has trained weights of a single run.
    """
    there = [
        cell
        for cell in cells
        if (cell.study, cell.base_model, cell.eval_length)
        == (one.study, one.base_model, one.eval_length)
    ]
    scores = [
        cell
        for cell in there
        if cell.benchmark == one.benchmark
        and (cell.is_default if one.metric is None else cell.metric == one.metric)
    ]
    texts = {cell.benchmark for cell in there if cell.unit == "perplexity"}
    losses = [cell for cell in there if cell.benchmark == min(texts, default=None)]
    up = 1 if any(cell.higher_is_better for cell in scores) else -1
    found = _by_document(scores)
    mean_losses = _means([cell for cell in losses if cell.is_default])
    own_losses = _by_document([cell for cell in losses if cell.is_default])
    methods = [method for method in found if method in mean_losses]
    exact = {cell.method for cell in scores if cell.exact_attention}
    if one.among is not None:
        if not {*one.among} <= {*methods}:
            return None
        methods = list(one.among)
    elif len([method for method in methods if method in exact]) >= FEWEST:
        methods = [method for method in methods if method in exact]
    if len(methods) < FEWEST:
        return None
    documents = sorted(set.intersection(*({*found[method]} for method in methods)), key=repr)
    taus = []
    for document in documents:
        loss = [own_losses.get(method, {}).get(document, mean_losses[method]) for method in methods]
        values = [up * found[method][document] for method in methods]
        # Equal scores of all methods say nothing about the order: no correlation.
        tied = len({*loss}) == 1 or len({*values}) == 1
        taus.append(0.0 if tied else float(-kendalltau(loss, values).statistic))
    if not taus:
        return None
    number = len(taus)
    differences = Differences(
        [(one.benchmark, *name) for name in documents],
        np.array(taus) / number,
        np.full(number, 1 / number),
        np.zeros(number, dtype=np.int64),
    )
    contrast = Contrast(
        differences.value,
        number,
        differences.error,
        skewness(differences.residuals),
        differences=differences,
    )
    runs = {(cell.method, cell.checkpoint) for cell in scores}
    num_runs = Counter(method for method, _ in runs)
    is_one_run = any(not frozen and num_runs[name, frozen] == 1 for name, frozen in methods)
    return contrast, len(methods), is_one_run


def _by_document(cells: Sequence[Cell]) -> dict[Method, dict[Any, float]]:
    """Return the mean score of each document by method; leave out methods with unfinished cells."""
    found: dict[Method, dict[Any, float]] = {}
    for method, own in grouped(cells, attrgetter("method")).items():
        if any(cell.scored is None for cell in own):
            continue
        scores: dict[Any, list[float]] = {}
        for cell in own:
            assert cell.scored is not None
            for name, score in zip(cell.clusters(), cell.scored.scores.tolist(), strict=True):
                scores.setdefault(name, []).append(score)
        found[method] = {name: float(np.mean(values)) for name, values in scores.items()}
    return found


def _means(planned: Sequence[Cell]) -> dict[Method, float]:
    """Return each method's mean value over its cells.

    To compare like with like, methods are omitted if a cell is unfinished or if their set of tasks
    and seeds is not the one that most methods share.
    """
    by_method = grouped(planned, attrgetter("method"))
    sets = [_parts(own) for own in by_method.values()]
    usual = max(sets, key=sets.count, default=frozenset())
    return {
        method: float(np.mean([cell.value for cell in own if cell.value is not None]))
        for method, own in by_method.items()
        if _parts(own) == usual and all(cell.value is not None for cell in own)
    }


def _parts(own: Sequence[Cell]) -> frozenset[Any]:
    return frozenset((*cell.part, cell.profile) for cell in own)


def _tested(found: RankAgreement) -> dict[str, Any]:
    return {**_agreement(found), "p_value": found.p_value, "p_adjusted": None}


def _agreement(found: RankAgreement) -> dict[str, Any]:
    row: dict[str, Any] = {"num_methods": found.num_methods}
    for name, one in (("spearman", found.spearman), ("kendall", found.kendall)):
        row |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
    return row
