"""Collect all claims of a study from the catalog's views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from dashboards.claims import wording
from dashboards.claims.claim import Claim
from dashboards.claims.pairs import pairs
from dashboards.claims.views import PERPLEXITY, Views, read_views, with_more_tasks
from lce_core import formats
from lce_core.kinds import Kind

if TYPE_CHECKING:
    import duckdb

_KINDS = get_args(Kind)
"""Claims of text come first, those of learning last."""


def claims(connection: duckdb.DuckDBPyConnection, study: str) -> list[Claim]:
    """Return every claim of a study, by base model, kind, benchmark, length and topic.

    Raises:
      SpecError: the catalog lacks the study.
    """
    views = read_views(connection, study)
    topics = ("base", "order", "length", "pair")
    kinds = {row["benchmark"]: row["kind"] for row in views.kinds}
    return sorted(
        [*pairs(views), *_orders(views), *_lengths(views)],
        key=lambda one: (
            one.base_model,
            _KINDS.index(kinds[one.benchmark]),
            one.benchmark != PERPLEXITY,
            one.benchmark,
            one.eval_length or 0,
            topics.index(one.topic),
        ),
    )


def told_apart(found: Sequence[Claim]) -> list[Claim]:
    """Prefix each sentence with its base model if the claims concern more than one."""
    if len({one.base_model for one in found}) < 2:
        return list(found)
    return [replace(one, text=f"with {one.base_model}, {one.text}") for one in found]


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
            else "no rank correlation between perplexity and scores is decided"
        )
        yield Claim(
            "order",
            "order" if is_order else "no order found",
            f"{where}, in this study, {relation} on {row['benchmark']}: Kendall's tau ="
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
