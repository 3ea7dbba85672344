"""Best method at each benchmark and length, among methods evaluated on the same tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dashboards.claims import wording
from dashboards.claims.claim import Claim, Verdict
from dashboards.claims.views import Views, first, other_labels
from dashboards.contents import Row
from lce_core import formats
from lce_core.study.variants import variant_in_words


def leaders(views: Views) -> Iterator[Claim]:
    """Yield one claim about the best method per benchmark, profile and length.

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
    own = [row for row in rows if first(row) == leader]
    by_verdict: dict[str, list[Row]] = {}
    for row in own:
        by_verdict.setdefault(row["verdict"], []).append(row)
    worse = by_verdict.get("better", [])
    same = by_verdict.get("the same", [])
    unsteady = by_verdict.get("not in every seed", [])
    alike = by_verdict.get("no difference found", [])
    unknown = by_verdict.get("too few", [])
    level = [row for row in own if row["difference"] == 0 and row["verdict"] != "the same"]
    where = wording.at(best["eval_length"], trained)
    name, what = variant_in_words(*leader), wording.measured(best, several)
    superlative = f"the {'highest' if up else 'lowest'} {what}"
    value = f"{formats.rounded(best['value'])}{wording.unit(best)}"
    head = f"{where}, {_best_of(own, same, level, f'{superlative} ({value})')}"
    detectable = [row["smallest_detectable"] for row in [*unsteady, *alike]]
    limit = max((one for one in detectable if one is not None), default=None)
    parts = []
    if len(worse) == len(own):
        parts.append(_better_than_all(own))
    elif len(worse) > wording.MOST_NAMED:
        parts.append(f"better than {len(worse)} methods")
    elif worse:
        parts.append(f"better than {wording.listed(other_labels(worse))}")
    if unsteady:
        whom = wording.listed(other_labels(unsteady))
        parts.append(f"better on average but not in every seed than {whom}")
    if alike:
        whom = wording.listed(other_labels(alike))
        note = "" if limit is None else f" ({wording.detectable(limit, best)})"
        parts.append(f"no significant difference from {whom}{note}")
    if unknown:
        few = max(row["num_clusters"] for row in unknown)
        number = len(unknown)
        whom = "any other method" if number == len(own) else f"{number} other{'s'[: number > 1]}"
        parts.append(f"{wording.too_few(few)} to compare {name} with {whom}")
    verdict: Verdict = (
        "better"
        if len(worse) == len(own)
        else "too few"
        if len(unknown) == len(own)
        else "the same"
        if len(same) == len(own)
        else "no difference found"
    )
    return Claim(
        "best",
        verdict,
        ": ".join([head, *(["; ".join(parts)] if parts else [])]),
        best["base_model"],
        best["benchmark"],
        best["eval_length"],
        best["task"],
        *leader,
        value=best["value"],
        num_samples=max(row["num_clusters"] for row in own),
        num_seeds=best["num_seeds"],
        smallest_detectable=limit,
    )


def _best_of(own: Sequence[Row], same: Sequence[Row], level: Sequence[Row], what: str) -> str:
    """Return the clause that names the best method, its score and the methods equal to it.

    Args:
      own: comparisons of the best method with each other method.
      same: those with identical scores on every sample.
      level: those with an equal mean only.
      what: the score, such as "the lowest perplexity (4.06)".
    """
    leader, number = variant_in_words(*first(own[0])), len(own) + 1
    equal = [f"{wording.listed(other_labels(level))} on average"] if level else []
    if len(same) > wording.MOST_NAMED:
        others = "".join(f", the same as {one}" for one in equal)
        return f"{len(same) + 1} of {number} methods, including {leader}, have {what}{others}"
    if same:
        equal = [f"{wording.listed(other_labels(same))} on every sample", *equal]
    others = f", the same as {' and as '.join(equal)}" if equal else ""
    return f"{leader} has {what} of {number} methods{others}"


def _better_than_all(rows: Sequence[Row]) -> str:
    """Return "better than all others", the margin over the closest method, and its evidence."""
    closest = min(rows, key=lambda row: abs(row["difference"]))
    (name,) = other_labels([closest])
    whom, closest_one = ("all others", f" than the closest, {name}")
    if len(rows) == 1:
        whom, closest_one = name, ""
    margin = f"{wording.gap(closest)}{closest_one}{wording.restricted(closest)}"
    p_holm = formats.p_value(closest["p_holm"])
    return f"better than {whom}; {margin}, {wording.averaged(closest)}; {p_holm}"
