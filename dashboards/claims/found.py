"""Collect all claims of a study from the catalog's views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from dashboards.claims import wording
from dashboards.claims.claim import Claim
from dashboards.claims.leaders import leaders
from dashboards.claims.pairs import pairs
from dashboards.claims.views import PERPLEXITY, Views, read_views, with_more_tasks
from lce_core import formats
from lce_core.kinds import Kind

if TYPE_CHECKING:
    import duckdb

_KINDS = (None, *get_args(Kind))
"""Claims of text come first, those of learning last. Plans of earlier versions state no kind."""


def claims(connection: duckdb.DuckDBPyConnection, study: str) -> list[Claim]:
    """Return every claim of a study, by base model, kind, benchmark, length and topic.

    Perplexity is the first text, and "best" the first topic.

    Args:
      connection: the catalog, opened by `catalog.queries.open_catalog`.
      study: name of a study in the catalog.

    Raises:
      SpecError: the catalog lacks the study, or an earlier version made the catalog.
    """
    views = read_views(connection, study)
    found = _marked([*pairs(views), *leaders(views), *_orders(views), *_lengths(views)], views)
    topics = ("best", "base", "order", "length", "pair")
    return sorted(
        found,
        key=lambda one: (
            one.base_model,
            _KINDS.index(one.kind),
            one.benchmark != PERPLEXITY,
            one.benchmark,
            one.eval_length or 0,
            topics.index(one.topic),
        ),
    )


def headline(found: Sequence[Claim]) -> list[Claim]:
    """Return at most three claims per base model that summarize the study.

    All are at the target context: the best method by the loss on text, the best at the benchmark
    with the most samples, and whether perplexity predicts that benchmark. If there are several base
    models, each sentence names its own.
    """
    chosen: list[Claim] = []
    for base_model in dict.fromkeys(one.base_model for one in found):
        own = [one for one in found if one.base_model == base_model and one.at_target]
        best = [one for one in own if one.topic == "best"]
        losses = [one for one in best if one.kind == "text"]
        answered = [one for one in best if one.kind != "text"]
        second = max(answered, key=lambda one: one.num_samples or 0, default=None)
        orders = [
            one
            for one in own
            if one.topic == "order" and second is not None and one.benchmark == second.benchmark
        ]
        chosen += [*losses[:1], *([second] if second else []), *orders[:1]]
    return told_apart(chosen)


def told_apart(found: Sequence[Claim]) -> list[Claim]:
    """Prefix each sentence with its base model if the claims concern more than one."""
    if len({one.base_model for one in found}) < 2:
        return list(found)
    return [replace(one, text=f"with {one.base_model}, {one.text}") for one in found]


def firsts(found: Sequence[Claim], base_model: str, trained: int | None) -> dict[int, list[Claim]]:
    """Return the claims about best methods (topic "best"), by length beyond the trained context.

    Args:
      found: claims of a study.
      base_model: base model to select.
      trained: trained context in tokens; None if unknown: returns all lengths.
    """
    by_length: dict[int, list[Claim]] = {}
    for one in found:
        length = one.eval_length or 0
        if one.topic == "best" and one.base_model == base_model and length > (trained or 0):
            by_length.setdefault(length, []).append(one)
    return dict(sorted(by_length.items()))


def _marked(found: list[Claim], views: Views) -> list[Claim]:
    """Return the claims with `kind` and `at_target` set.

    `at_target` is True at the longest length of a benchmark within the target context.
    """
    longest: dict[tuple[str, str], int] = {}
    for one in found:
        length = one.eval_length or 0
        if length <= views.target(one.base_model):
            key = one.base_model, one.benchmark
            longest[key] = max(length, longest.get(key, 0))
    kinds = {row["benchmark"]: row["kind"] for row in views.kinds}
    return [
        replace(
            one,
            kind=kinds.get(one.benchmark),
            at_target=one.eval_length == longest.get((one.base_model, one.benchmark), 0),
        )
        for one in found
    ]


def _lengths(views: Views) -> Iterator[Claim]:
    several = with_more_tasks(views.lengths, "task")
    for row in views.lengths:
        metric = "nll" if row["unit"] == "nats" else row["unit"]
        what = wording.measured(
            {**row, "metric": metric, "tasks": row["task"]}, row["benchmark"] in several
        )
        name = wording.named((row["method"], row["frozen"]))
        bar = "at least" if row["higher_is_better"] else "at most"
        threshold = f"{formats.rounded(row['threshold'])}{wording.unit(row)}"
        held = (
            f"its {what} is {bar} {threshold} up to this length"
            if row["tokens"]
            else f"its {what} is not {bar} {threshold} even at the shortest evaluated length"
        )
        yield Claim(
            "length",
            "holds",
            f"{name} has an effective context of {row['tokens']:,} tokens"
            f" [{row['ci_low']:,} to {row['ci_high']:,}]: {held};"
            f" evaluated up to {row['longest']:,} tokens",
            row["base_model"],
            row["benchmark"],
            task=row["task"],
            method=row["method"],
            frozen=row["frozen"],
            value=row["tokens"],
            low=row["ci_low"],
            high=row["ci_high"],
            num_seeds=row["num_seeds"],
        )


def _orders(views: Views) -> Iterator[Claim]:
    for row in views.orders:
        if row["kendall_low"] is None or row["p_adjusted"] is None:
            continue  # too few methods, or all have equal scores
        who = "methods" if row["methods"] == "all" else "methods with exact attention"
        where = wording.at(row["eval_length"], views.trained(row["base_model"]))
        sign = "better" if row["kendall"] > 0 else "worse"
        is_order = row["p_adjusted"] <= 0.05 and row["kendall_low"] * row["kendall_high"] > 0
        relation = (
            f"methods with a lower perplexity have {sign} scores"
            if is_order
            else "no significant rank correlation between perplexity and scores"
        )
        yield Claim(
            "order",
            "order" if is_order else "no order found",
            f"{where}, {relation} on {row['benchmark']}: Kendall's tau ="
            f" {formats.estimate(row['kendall'], row['kendall_low'], row['kendall_high'])}"
            f" over {row['num_methods']} {who}; {formats.p_value(row['p_adjusted'])}",
            row["base_model"],
            row["benchmark"],
            row["eval_length"],
            value=row["kendall"],
            low=row["kendall_low"],
            high=row["kendall_high"],
            p_adjusted=row["p_adjusted"],
        )
