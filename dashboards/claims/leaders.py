"""Best method at each benchmark and length, among methods evaluated on the same tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dashboards.claims import wording
from dashboards.claims.claim import Claim, Verdict
from dashboards.claims.views import Views, first, other, other_labels
from dashboards.contents import Row
from lce_core import formats
from lce_core.study.variants import variant_label


def leaders(views: Views) -> Iterator[Claim]:
    """Yield one claim about the best method per base model, benchmark, profile and length.

    If pairs of methods were compared on different task sets, only the largest set counts.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in views.pairs:
        key = (row["base_model"], row["benchmark"], row["profile"], row["eval_length"])
        groups.setdefault(key, []).append(row)
    for rows in groups.values():
        counts: dict[str, int] = {}
        for row in rows:
            counts[row["tasks"]] = counts.get(row["tasks"], 0) + 1
        # Prefer the set with the most tasks, then the set shared by the most pairs.
        usual = max(counts, key=lambda tasks: (tasks.count(","), counts[tasks]))
        yield _leader(
            [row for row in rows if row["tasks"] == usual],
            views.trained(rows[0]["base_model"]),
            len(counts) > 1,
        )


def _leader(rows: list[Row], trained: int | None, several: bool) -> Claim:
    up = rows[0]["higher_is_better"]
    best = max(rows, key=lambda row: row["value"] if up else -row["value"])
    leader = first(best)
    own = _strongest(rows, leader)
    ranked = sorted(own, key=lambda row: -row["other_value"] if up else row["other_value"])
    by_verdict: dict[str, list[Row]] = {}
    for row in own:
        by_verdict.setdefault(row["verdict"], []).append(row)
    what = wording.measured(best, several)
    value = f"{formats.rounded(best['value'])}{wording.unit(best)}"
    where = wording.at(best["eval_length"], trained)
    extreme = "highest" if up else "lowest"
    head = f"{where}, {_best_of(own, extreme, f'{what} ({value})')}"
    limits = [row["smallest_detectable"] for row in by_verdict.get("no difference found", [])]
    limit = max((one for one in limits if one is not None), default=None)
    parts = "; ".join(_against_others(by_verdict, len(own), limit))
    verdict: Verdict = "no difference found"
    if len(by_verdict) == 1 and own[0]["verdict"] in ("better", "too few", "the same"):
        verdict = own[0]["verdict"]  # shared by all comparisons
    return Claim(
        "best",
        verdict,
        f"{head}: {parts}" if parts else head,
        best["base_model"],
        best["benchmark"],
        best["eval_length"],
        best["task"],
        *leader,
        **_next([row for row in ranked if row["verdict"] == "better"]),
        value=best["value"],
        tied=_labels(row for row in ranked if row["difference"] == 0),
        alike=_labels(row for row in ranked if row["difference"] and row["verdict"] != "better"),
        num_samples=max(row["num_clusters"] for row in own),
        num_seeds=best["num_seeds"],
        smallest_detectable=limit,
    )


def _strongest(rows: Sequence[Row], leader: tuple[str, bool]) -> list[Row]:
    """Return one comparison of the best method with each other method.

    Methods that are the same as the best one on every sample are compared with the others on the
    same numbers. Of these comparisons, the one with the lowest p_Holm counts: a study may expect
    one of them and thus correct it for fewer tests.
    """
    own = {other(row): row for row in rows if first(row) == leader}
    same = {name for name, row in own.items() if row["verdict"] == "the same"}
    for row in rows:
        name = other(row)
        if first(row) in same and name not in {leader, *same}:
            own[name] = min(own[name], row, key=lambda one: (one["p_adjusted"] is None, one["p_adjusted"]))
    return list(own.values())


def _labels(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(variant_label(*other(row)) for row in rows)


def _next(worse: Sequence[Row]) -> dict[str, Any]:
    """Return the fields of a claim that compare the best method with the next significant one."""
    if not worse:
        return {}
    method, frozen = other(worse[0])
    return {
        "other_method": method,
        "other_frozen": frozen,
        "difference": worse[0]["difference"],
        "low": worse[0]["ci_low"],
        "high": worse[0]["ci_high"],
        "p_adjusted": worse[0]["p_adjusted"],
        "family": worse[0]["family"],
    }


def _against_others(
    by_verdict: Mapping[str, list[Row]], number: int, limit: float | None
) -> Iterator[str]:
    """Yield a clause for each verdict that the best method has, except "the same".

    Args:
      by_verdict: comparisons of the best method with each other method.
      number: how many comparisons these are.
      limit: largest of the smallest detectable differences; None if none is known.
    """
    if worse := by_verdict.get("better"):
        if len(worse) == number:
            yield _better_than_all(worse)
        elif len(worse) > wording.MOST_NAMED:
            yield f"better than {len(worse)} methods"
        else:
            yield f"better than {wording.listed(other_labels(worse))}"
    if alike := by_verdict.get("no difference found"):
        whom = wording.listed(other_labels(alike))
        note = "" if limit is None else f" ({wording.detectable(limit, alike[0], len(alike))})"
        yield f"no significant difference from {whom}{note}"
    if unknown := by_verdict.get("too few"):
        name = wording.named(first(unknown[0]))
        others = f"{len(unknown)} other{'s'[: len(unknown) > 1]}"
        whom = "any other method" if len(unknown) == number else others
        few = max(row["num_clusters"] for row in unknown)
        yield f"{wording.too_few(few)} to compare {name} with {whom}"


def _best_of(own: Sequence[Row], extreme: str, score: str) -> str:
    """Return the clause that names the best method, its score and the methods equal to it.

    Args:
      own: comparisons of the best method with each other method.
      extreme: "highest" or "lowest".
      score: such as "perplexity (4.06)".
    """
    leader, number = wording.named(first(own[0])), len(own) + 1
    same = [row for row in own if row["verdict"] == "the same"]  # on every sample
    if len(same) == len(own) > 1:
        return f"all {number} methods have the same {score} on every sample"
    level = [row for row in own if row["difference"] == 0 and row not in same]
    equal = [f"{wording.listed(other_labels(level))} on average"] if level else []
    if len(same) > wording.MOST_NAMED:
        others = "".join(f", the same as {one}" for one in equal)
        some = f"{len(same) + 1} of {number} methods"
        return f"{some} have the {extreme} {score}{others}"
    if same:
        equal = [f"{wording.listed(other_labels(same))} on every sample", *equal]
    others = f", the same as {' and as '.join(equal)}" if equal else ""
    return f"{leader} has the {extreme} {score} of {number} methods{others}"


def _better_than_all(rows: Sequence[Row]) -> str:
    """Return "better than all others", the margin over the closest method, and its evidence."""
    closest = min(rows, key=lambda row: abs(row["difference"]))
    (name,) = other_labels([closest])
    whom, closest_one = ("all others", f" than the closest, {name}")
    if len(rows) == 1:
        whom, closest_one = name, ""
    margin = f"{wording.gap(closest)}{closest_one}{wording.restricted(closest)}"
    p_adjusted = formats.p_value(closest["p_adjusted"])
    return f"better than {whom}; {margin}, {wording.averaged(closest)}; {p_adjusted}"
