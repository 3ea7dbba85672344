"""Section: any two methods, compared on every benchmark and length.

The page contains the comparisons of all pairs as JSON. Its script shows those of the pair that the
reader picks. All numbers are formatted here; the script only turns signs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from dashboards.contents import Contents, Row, select
from dashboards.families import Variant, ordered
from dashboards.figure import Table, rendered
from lce_core import formats

TITLE = "Two methods"
_HEADS = ("benchmark", "tokens", "first", "second", "difference", "p or q", "the first is")


def section(contents: Contents) -> Markup:
    """Return two lists of methods and the table of their comparisons; "" if there are none."""
    rows = contents.pairs
    compared = {one for row in rows for one in Variant.pair(row)}
    methods = [one for one in ordered(contents) if one in compared]
    if not rows:
        return Markup()
    order = list(dict.fromkeys(row["benchmark"] for row in (*contents.benchmarks, *rows)))
    picked = _default(contents, methods)
    return rendered(
        "pairs.html",
        title=TITLE,
        methods=[one.label for one in methods],
        chosen={name: one.label for name, one in zip(("first", "second"), picked, strict=True)},
        table=Table(_HEADS, []).html(),
        content=_packed(rows, methods, order),
    )


def _default(contents: Contents, methods: Sequence[Variant]) -> Sequence[Variant]:
    """Return the first pair that an expectation names, or else the two best by perplexity."""
    expected = map(Variant.pair, contents.expectations)
    best = map(Variant.of, select(contents.standing, measure="perplexity"))
    ranked = [one for one in dict.fromkeys([*best, *methods]) if one in methods]
    return next((pair for pair in expected if set(pair) <= set(methods)), ranked[:2])


def _packed(
    rows: Sequence[Row], methods: Sequence[Variant], order: Sequence[str]
) -> dict[str, Any]:
    """Return the JSON content: names of methods, columns, and the rows of each pair.

    The columns follow `order`, the names of the benchmarks.

    A pair's key has the numbers of both methods in `methods`, the smaller one first. Its rows list
    the number of the column, both values, the difference with its interval, p or q and the verdict
    on the first method.
    """
    several = len({(row["benchmark"], row["profile"]) for row in rows}) > len(
        {row["benchmark"] for row in rows}
    )
    rows = sorted(rows, key=lambda row: (order.index(row["benchmark"]), row["eval_length"]))
    columns = list(dict.fromkeys(_column(row, several) for row in rows))
    numbers = {one: number for number, one in enumerate(methods)}
    pairs: dict[str, list[list[Any]]] = {}
    for row in rows:
        first, second = (numbers[one] for one in Variant.pair(row))
        if first < second:
            pairs.setdefault(f"{first} {second}", []).append(
                [columns.index(_column(row, several)), *_texts(row)]
            )
    return {"methods": [one.label for one in methods], "columns": columns, "pairs": pairs}


def _column(row: Row, with_profile: bool) -> tuple[str, str]:
    profile = f" ({row['profile']})" if with_profile else ""
    return row["benchmark"].replace("_", " ") + profile, f"{row['eval_length']:,}"


def _texts(row: Mapping[str, Any]) -> list[str | None]:
    ends = (row["difference"], row["ci_low"], row["ci_high"])
    return [
        formats.score(row["value"]),
        formats.score(row["other_value"]),
        *(None if end is None else f"{end:+z.3f}" for end in ends),
        formats.p_value(row["p_adjusted"], row["family"]),
        row["verdict"],
    ]
