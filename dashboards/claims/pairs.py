"""Comparisons of two methods on the prompts that both were evaluated on."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards.claims import wording
from dashboards.claims.claim import Claim
from dashboards.claims.views import BASE, Views, first, other, with_more_tasks
from dashboards.contents import Row
from lce_core import formats
from lce_core.study.variants import variant_in_words

_UNDECIDED = ("the same", "no difference found", "too few")


def pairs(views: Views) -> Iterator[Claim]:
    """Yield one claim per pair of methods; the better method is the subject of the sentence.

    If neither is better, the subject is the method compared with the base model, or the method of
    the first row.
    """
    several = with_more_tasks(views.pairs, "tasks")
    seen = set()
    for row in views.pairs:
        methods = frozenset([first(row), other(row)])
        key = (row["holm_family"], row["base_model"], row["profile"], methods)
        ahead = (row["difference"] > 0) == row["higher_is_better"]
        if key in seen or row["verdict"] == "worse":
            continue
        if row["verdict"] == "not in every seed" and not ahead:
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
        p_holm=row["p_holm"],
        holm_family=row["holm_family"],
        num_samples=row["num_clusters"],
        num_seeds=row["num_seeds"],
        smallest_detectable=row["smallest_detectable"],
    )


def _said(row: Row, several: bool) -> str:
    """Return the result of a comparison as a clause, worded by the row's verdict."""
    ours, theirs = (variant_in_words(*one) for one in (first(row), other(row)))
    what, p_holm = wording.measured(row, several), formats.p_value(row["p_holm"])
    seeds, detectable = wording.seeds(row), wording.detectable(row["smallest_detectable"])
    gap = formats.estimate(row["difference"], row["ci_low"], row["ci_high"])
    if row["verdict"] == "better":
        return f"{ours} beats {theirs} on {what} by {ahead(row)}, {seeds}, {p_holm}"
    if row["verdict"] == "not in every seed":
        spread = sorted((row["lowest"], row["highest"]), reverse=row["difference"] < 0)
        lowest, highest = (abs(one) if one * row["difference"] > 0 else -abs(one) for one in spread)
        return (
            f"{ours} is ahead of {theirs} on {what} by {ahead(row)}, {p_holm}, but not in every"
            f" seed ({seeds}: {formats.rounded(lowest, highest)} to"
            f" {formats.rounded(highest, lowest)})"
        )
    if row["verdict"] == "the same":
        samples = f"all {row['num_clusters']} samples"
        return f"{ours} and {theirs} score the same on {samples} of {what}{detectable}"
    if row["verdict"] == "too few":
        return (
            f"{wording.too_few(row['num_clusters'], f' of {what}')} to compare {ours} with"
            f" {theirs}: {gap}, {seeds}"
        )
    return (
        f"no significant difference between {ours} and {theirs} on {what}:"
        f" {gap}, {seeds}, {p_holm}{detectable}"
    )


def ahead(row: Row) -> str:
    """Format the absolute difference and its interval: how far the better method is ahead."""
    low, high = sorted((abs(row["ci_low"]), abs(row["ci_high"])))
    return formats.estimate(abs(row["difference"]), low, high)
