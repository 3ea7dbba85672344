"""Section: whether each method is worse than the base model within its trained context."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from dashboards.contents import Contents, Row
from dashboards.families import Variant, duplicates
from dashboards.figure import Table, paragraph
from lce_core import formats

TITLE = "Within the trained context"
_VERDICTS = {
    "confirmed": "not worse",
    "contradicted": "worse",
    "on one training run": "decided on one training run only",
    "undecided": "undecided",
    "too few": "too few samples",
}
_NEEDED = (
    " n: with so many training seeds or independent samples, 4 of 5 studies would decide the"
    " comparison, if the true difference equals the measured one."
)


def section(contents: Contents) -> Markup:
    """Return a sentence and a table of methods by benchmarks; "" if nothing is compared."""
    rows = contents.short_context
    if not rows:
        return Markup()
    return paragraph(caption(rows)) + table(rows, duplicates(contents)).saved(TITLE)


def caption(rows: Sequence[Row]) -> str:
    """Return what the table compares, and the number of comparisons by verdict."""
    number = Counter(_VERDICTS[row["outcome"]] for row in rows)
    counts = ", ".join(f"{number[one]} {one}" for one in _VERDICTS.values() if number[one])
    margins = " or ".join(dict.fromkeys(_size(row, row["margin"]) for row in rows))
    late = sum(row["family"] != "short context" for row in rows)
    note = f" {late} were added after a result, so they are exploratory." if late else ""
    return (
        "Each method minus the untuned base model, at the longest evaluated length within its"
        " trained context. Not worse: the 95 % interval, which holds for all at once, excludes a"
        f" disadvantage of {margins}. Worse: the whole interval exceeds this disadvantage. {counts}"
        f".{note}{_NEEDED if number['undecided'] else ''}"
    )


def table(rows: Sequence[Row], same: Mapping[Variant, Variant]) -> Table:
    """Return the table: a row per method, and a column per benchmark and length."""
    columns = list(dict.fromkeys(map(_column, rows)))
    cells = {(Variant.of(row), _column(row)): _cell(row) for row in rows}
    return Table(
        ("method", *columns),
        [
            (one, *(cells.get((one, column), "") for column in columns))
            for one in dict.fromkeys(map(Variant.of, rows))
        ],
        same,
    )


def _column(row: Row) -> str:
    return f"{row['benchmark'].replace('_', ' ')}, {row['eval_length']:,} tokens"


def _cell(row: Row) -> str:
    verdict = _VERDICTS[row["outcome"]]
    if row["num_needed"] is not None:
        unit = "seeds" if row["generalises_to"] == "training seeds" else "samples"
        verdict += f" (n = {formats.two_digits(row['num_needed'])} {unit})"
    if not row["is_ratio"]:
        return f"{formats.difference(row['difference'], row['ci_low'], row['ci_high'])}, {verdict}"
    number = f"{100 * row['difference']:+.1f}"
    if row["ci_low"] is not None:
        number += f" [{100 * row['ci_low']:+.1f}, {100 * row['ci_high']:+.1f}]"
    return f"{number} %, {verdict}"


def _size(row: Row, margin: float) -> str:
    return f"{100 * margin:g} % of a perplexity" if row["is_ratio"] else f"{margin:g}"
