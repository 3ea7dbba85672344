"""Section: the best methods at each length beyond the trained context, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import chain

from dashboards.claims import Claim, firsts, headline
from dashboards.claims.wording import CORRELATION, EXPLAINED, SET_NAMES
from dashboards.contents import Contents
from dashboards.families import Variant, duplicates
from dashboards.figure import code, heads, scrollable
from lce_core import formats

TITLE = "Best at each length"
_HEADS = (
    "tokens", "benchmark", "best score", "methods with this score", "not significantly different",
    "smallest detectable difference", "best significantly worse method", "lead over it",
    "independent samples",
)  # fmt: skip
MOST_NAMED = 3
"""Number of names that a cell always shows. Further ones are in a collapsed list."""
_BASES = (
    f"{code('none')} is the untuned base model, {code('none tuned')} the base model fine-tuned"
    " without an extension."
)
_NOTES = (
    "Methods that are not significantly different may still be worse by less than the smallest"
    " detectable difference. Each comparison has its own; the table shows the largest. It can"
    " exceed a significant lead over another method, whose scores vary less. Expected, exploratory:"
    " the set of comparisons that p_Holm and interval are corrected for. Equal differences in"
    " different sets have different intervals."
)


def section(contents: Contents, found: Sequence[Claim]) -> str:
    """Return the table, with a row per length and benchmark; "" if no two methods are comparable.

    Args:
      contents: rows of one base model.
      found: all claims of the study.
    """
    (study,) = contents.studies
    base, trained = study["base_model"], study["trained_context"]
    by_length = firsts(found, base, trained)
    if not by_length:
        return ""
    same = duplicates(contents)
    body = "".join(
        f"<tr>{_row(one, contents, same)}</tr>" for rows in by_length.values() for one in rows
    )
    orders = "".join(
        f"<p>{escape(one.sentence)}</p>"
        for one in headline([one for one in found if one.base_model == base])
        if one.topic == "order"
    )
    if orders:
        orders += f"<p>{escape(CORRELATION)}</p>"
    return (
        f"<p>{_conclusion(by_length.values(), contents, same)} {_BASES}</p>"
        f"{scrollable(heads(*_HEADS), body, 'leaders')}<p>{_NOTES}</p>{orders}"
        f"<details><summary>How methods are compared</summary><p>{escape(EXPLAINED)} All pairs:"
        f" {code('lce claims')}.</p></details>"
    )


def _conclusion(
    rows: Iterable[Sequence[Claim]], contents: Contents, same: Mapping[Variant, Variant]
) -> str:
    """Return a sentence about the rows in which one method is better than all others, or none."""
    alone = []
    for one in chain.from_iterable(rows):
        best = _best(one, contents)
        if one.other_method and not one.alike and len({same.get(v, v) for v in best}) == 1:
            where = f"{_benchmark(one, contents)} at {one.eval_length:,} tokens"
            alone.append(f"{names(best, same)} on {where}")
    if not alone:
        return "On no benchmark here is one method significantly better than all others."
    return f"Significantly better than all other methods: {'; '.join(alone)}."


def _best(one: Claim, contents: Contents) -> list[Variant]:
    """Return the methods with the best score."""
    known = {variant.label: variant for variant in map(Variant.of, contents.overview)}
    return [Variant(one.method or "", bool(one.frozen)), *(known[name] for name in one.tied)]


def _benchmark(one: Claim, contents: Contents) -> str:
    """Return the benchmark's name, and the task if the claim is about one of several."""
    tasks = {row["task"] for row in contents.scores if row["benchmark"] == one.benchmark}
    task = f": {one.task}" if one.task and len(tasks) > 1 else ""
    return escape(f"{one.benchmark}{task}".replace("_", " "))


def _row(one: Claim, contents: Contents, same: Mapping[Variant, Variant]) -> str:
    known = {variant.label: variant for variant in map(Variant.of, contents.overview)}
    length, trained = one.eval_length or 0, contents.studies[0]["trained_context"]
    times = f" ({length / trained:.3g}x)" if trained else ""
    value = one.value or 0.0
    return (
        f'<th scope="row" data-value="{length}">{length:,}{times}</th>'
        f"<td>{_benchmark(one, contents)}</td>"
        f'<td class="number" data-value="{value!r}">{formats.score(value)}</td>'
        f"<td>{names(_best(one, contents), same, 0)}</td>"
        f"<td>{names([known[name] for name in one.alike], same)}</td><td>{_detectable(one)}</td>"
        f"{_next(one)}"
        f'<td class="number">{one.num_samples or 0:,}</td>'
    )


def names(
    variants: Sequence[Variant], same: Mapping[Variant, Variant], shown_of_more: int = MOST_NAMED
) -> str:
    """Return the names as HTML; variants that are the same computation are joined by "=".

    Args:
      variants: the variants in the order of the list.
      same: variants that repeat the computation of another one.
      shown_of_more: number of names that stay visible if there are more than `MOST_NAMED`; 0 if
        the order means nothing, so that no name stands out.
    """
    groups: dict[Variant, list[str]] = {}
    for variant in variants:
        groups.setdefault(same.get(variant, variant), []).append(code(variant.label))
    shown = [" = ".join(group) for group in groups.values()]
    if len(shown) <= MOST_NAMED:
        return ", ".join(shown)
    first, rest = ", ".join(shown[:shown_of_more]), ", ".join(shown[shown_of_more:])
    number = sum(map(len, list(groups.values())[shown_of_more:]))
    more = f"and {number} more" if first else f"{number} methods"
    return f'{first} <details class="rest"><summary>{more}</summary> {rest}</details>'.lstrip()


def _next(one: Claim) -> str:
    if one.other_method is None or one.difference is None or one.p_adjusted is None:
        return "<td>no method is significantly worse</td><td></td>"
    # A claim's interval belongs to the signed difference; the gap is positive.
    low, high = sorted((abs(one.low or 0.0), abs(one.high or 0.0)))
    gap = abs(one.difference)
    shown = formats.estimate(gap, low, high) if one.low is not None else formats.rounded(gap)
    return (
        f"<td>{code(Variant(one.other_method, bool(one.other_frozen)).label)}</td>"
        f'<td class="lead" data-value="{gap!r}">{shown}<br>{formats.p_value(one.p_adjusted)},'
        f" {SET_NAMES.get(one.family or '', one.family)}</td>"
    )


def _detectable(one: Claim) -> str:
    if one.smallest_detectable is not None:
        return formats.rounded(one.smallest_detectable)
    return "too few samples" if one.verdict == "too few" else ""
