"""Comparisons of two methods on the prompts that both were evaluated on."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards.claims import wording
from dashboards.claims.claim import Claim
from dashboards.claims.views import BASE, Views, first, other, with_more_tasks
from dashboards.contents import Row
from lce_core import formats

_UNDECIDED = ("the same", "undecided", "too few")


def pairs(views: Views) -> Iterator[Claim]:
    """Yield one claim per pair of methods; the better method is the subject of the sentence.

    If neither is better, the subject is the method compared with the base model, or the method of
    the first row.
    """
    several = with_more_tasks(views.pairs, "tasks")
    seen = set()
    for row in views.pairs:
        methods = frozenset([first(row), other(row)])
        key = (
            row["base_model"],
            row["benchmark"],
            row["tasks"],
            row["eval_length"],
            row["profile"],
            methods,
        )
        if key in seen or row["verdict"] == "worse":
            continue
        if row["verdict"] in _UNDECIDED and first(row) == BASE:
            continue  # reported from the method's side
        seen.add(key)
        yield _pair(row, views.trained(row["base_model"]), row["benchmark"] in several)


def _pair(row: Row, trained: int | None, several: bool) -> Claim:
    return Claim(
        "base" if BASE in (first(row), other(row)) else "pair",
        row["verdict"],
        f"{wording.at(row['eval_length'], trained)}, {_said(row, several)}",
        row["base_model"],
        row["benchmark"],
        row["eval_length"],
        row["task"],
        *first(row),
        *other(row),
        difference=row["difference"],
        low=row["ci_low"],
        high=row["ci_high"],
        value=row["value"],
        p_adjusted=row["p_adjusted"],
        family=row["family"],
        num_samples=row["num_clusters"],
        num_seeds=row["num_seeds"],
        smallest_detectable=row["smallest_detectable"],
        num_needed=row["num_needed"],
    )


def _said(row: Row, several: bool) -> str:
    """Return the result of a comparison as a clause, worded by the row's verdict."""
    ours, theirs = map(wording.named, (first(row), other(row)))
    what, gap, samples = wording.measured(row, several), wording.gap(row), row["num_clusters"]
    limit = row["smallest_detectable"]
    detectable = "" if limit is None else f"; {wording.detectable(limit, row)}"
    evidence = f"{wording.averaged(row)}; {formats.p_value(row['p_adjusted'], row['family'])}"
    found = wording.needed(row) if row["difference"] else ""
    needed = f"; {found} would decide (80 % power)" if found else ""
    if row["verdict"] == "better":
        here = "in this study, " if row["family"] == "exploratory" else ""
        return (
            f"{here}{ours} is better than {theirs}{wording.restricted(row)}: its {what} is {gap},"
            f" {evidence}{' (exploratory)' if here else ''}"
        )
    if row["verdict"] == "the same":
        return (
            f"{ours} and {theirs} are equal in {what}: the same score on each of"
            f" {wording.independent_samples(samples)}{detectable}"
        )
    if row["verdict"] == "too few":
        return (
            f"{wording.too_few(samples)} to compare {ours} with {theirs}; on average over these,"
            f" the {what} of {ours} is {gap}{needed}"
        )
    if row["blocked_by"] is not None:
        detectable = ""
        evidence = wording.averaged(row)
        needed = f"; not tested, because expectation {row['blocked_by'] + 1} is undecided"
    return (
        f"undecided between {ours} and {theirs}: the {what} of {ours} is {gap},"
        f" {evidence}{detectable}{needed}"
    )
