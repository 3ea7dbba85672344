"""Tables that compare the methods which the hypothesis or an expectation names with each other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from dashboards.contents import Contents, Row, select
from dashboards.families import Variant, duplicates
from dashboards.figure import Cell, Table, Value, code, paragraph
from dashboards.scores import MARKS
from lce_core import formats

Pairs = Mapping[tuple[Variant, Variant], Row]


def section(contents: Contents) -> Markup:
    """Return a table for each benchmark that an expectation names; "" for fewer than two methods.

    Without expectations there is a table for every benchmark.
    """
    methods = named(contents)
    predicted = {row["benchmark"] for row in contents.expectations}
    benchmarks = dict.fromkeys(row["benchmark"] for row in contents.benchmarks)
    tables = [
        _table(contents, benchmark, methods)
        for benchmark in benchmarks
        if not predicted or benchmark in predicted
    ]
    if not any(tables):
        return Markup()
    legend = paragraph(
        "Each cell is the score of the row's method minus that of the column's, with its 95 %"
        f" interval. {MARKS['better']}: the row's method is significantly better;"
        f" {MARKS['worse']}: worse."
    )
    return legend + Markup("").join(tables)


def named(contents: Contents) -> list[Variant]:
    """Return the variants that an expectation names, and those of methods in the hypothesis.

    Of a method that an expectation names, only the variants that it names count.
    """
    order = [Variant.of(row) for row in contents.overview]
    found = {one for row in contents.expectations for one in Variant.pair(row) if one.method}
    words = {_plain(one) for one in re.findall(r"[\w.-]+", contents.studies[0]["hypothesis"] or "")}
    known = {one.method for one in found}
    found |= {
        one
        for one in order
        if one.method not in known and not one.is_control and _plain(one.method) in words
    }
    return [one for one in order if one in found]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _table(contents: Contents, benchmark: str, methods: Sequence[Variant]) -> Markup:
    """Return the table at the benchmark's longest length within the target; "" without pairs."""
    target = contents.studies[0]["target_context"]
    rows = select(contents.pairs, benchmark=benchmark)
    lengths = [row["eval_length"] for row in rows if row["eval_length"] <= target]
    pairs = {
        pair: row
        for row in rows
        if lengths and row["eval_length"] == max(lengths)
        if set(pair := Variant.pair(row)) <= set(methods)
    }
    if not pairs:
        return Markup()
    up = next(iter(pairs.values()))["higher_is_better"]
    values = {first: row["value"] for (first, _), row in pairs.items()}
    order = sorted(values, key=lambda one: -values[one] if up else values[one])
    table = Table(
        ("method", "score", *(code(one.label) for one in order)),
        [(one, values[one], *(_cell(pairs, one, second) for second in order)) for one in order],
        duplicates(contents),
        "named",
    )
    title = f"{benchmark.replace('_', ' ')}, {max(lengths):,} tokens"
    about = f": {'higher' if up else 'lower'} is better"
    return table.folded(f"named methods, {title}", title, about)


def _cell(pairs: Pairs, one: Variant, second: Variant) -> Value:
    row = pairs.get((one, second))
    if row is None:
        return None
    number, _, interval = formats.difference(
        row["difference"] + 0.0, row["ci_low"], row["ci_high"]
    ).partition(" ")
    mark = Markup()
    if row["verdict"] in MARKS:
        image = Markup(' <span role="img" aria-label="{}">{}</span>')
        mark = image.format(row["verdict"], MARKS[row["verdict"]])
    p_value = formats.p_value(row["p_adjusted"], row["family"])
    about = f"{one.label} minus {second.label}: {p_value}"
    shown = Markup("{}{}<br><small>{}</small>").format(number, mark, interval)
    return Cell(shown, {"data-value": repr(row["difference"]), "data-tooltip": about})
