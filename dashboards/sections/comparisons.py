"""Sections that compare methods with each other, with the base model and with papers."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from dashboards.contents import Contents, Row, grouped, select
from dashboards.families import MARKS, Variant, duplicates, ordered
from dashboards.figure import Cell, Table, Value, code, paragraph, rendered, verdict_mark
from lce_core import formats
from lce_core.study.variants import weights_label

PAIRS = "Two methods"
SHORT_CONTEXT = "Within the trained context"
_HEADS = ("benchmark", "tokens", "first", "second", "difference", "p or q", "the first is")
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
_BESIDE = {
    "paper": "paper", "place": "place", "method": "method", "weights": "weights",
    "benchmark": "benchmark", "task": "task", "eval_length": "length", "value": "ours",
    "paper_value": "printed", "difference": "difference", "rank": "our rank",
    "paper_rank": "rank in the paper",
}  # fmt: skip
_NO_PAPER = Markup(
    "No paper reports a score for a method, base model, benchmark, task, length and profile of this"
    " study. All scores that the papers report: <code>lce sql"
    ' "FROM paper_scores"</code>.'
)


def named_methods(contents: Contents) -> Markup:
    """Return a table for each benchmark that an expectation names, or else for every benchmark."""
    methods = named(contents)
    predicted = {row["benchmark"] for row in contents.expectations}
    benchmarks = dict.fromkeys(row["benchmark"] for row in contents.benchmarks)
    tables = [
        _between(contents, benchmark, methods)
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
    """Return the variants of the expectations, and those of other methods in the hypothesis."""
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


def _between(contents: Contents, benchmark: str, methods: Sequence[Variant]) -> Markup:
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
        [(one, values[one], *(_minus(pairs, one, second) for second in order)) for one in order],
        duplicates(contents),
        "named",
    )
    title = f"{benchmark.replace('_', ' ')}, {max(lengths):,} tokens"
    about = f": {'higher' if up else 'lower'} is better"
    return table.folded(f"named methods, {title}", title, about)


def _minus(pairs: Mapping[tuple[Variant, Variant], Row], one: Variant, second: Variant) -> Value:
    row = pairs.get((one, second))
    if row is None:
        return None
    number, _, interval = formats.difference(
        row["difference"] + 0.0, row["ci_low"], row["ci_high"]
    ).partition(" ")
    p_value = formats.p_value(row["p_adjusted"], row["family"])
    about = f"{one.label} minus {second.label}: {p_value}"
    shown = Markup("{}{}<br><small>{}</small>").format(
        number, verdict_mark(row["verdict"]), interval
    )
    return Cell(shown, {"data-value": repr(row["difference"]), "data-tooltip": about})


def two_methods(contents: Contents) -> Markup:
    rows = contents.pairs
    compared = {one for row in rows for one in Variant.pair(row)}
    methods = [one for one in ordered(contents) if one in compared]
    if not rows:
        return Markup()
    order = list(dict.fromkeys(row["benchmark"] for row in (*contents.benchmarks, *rows)))
    picked = _default(contents, methods)
    return rendered(
        "pairs.html",
        title=PAIRS,
        methods=[one.label for one in methods],
        chosen={name: one.label for name, one in zip(("first", "second"), picked, strict=True)},
        table=Table(_HEADS, []).html(),
        content=_packed(rows, methods, order),
    )


def _default(contents: Contents, methods: Sequence[Variant]) -> Sequence[Variant]:
    expected = map(Variant.pair, contents.expectations)
    best = map(Variant.of, select(contents.standing, measure="perplexity"))
    ranked = [one for one in dict.fromkeys([*best, *methods]) if one in methods]
    return next((pair for pair in expected if set(pair) <= set(methods)), ranked[:2])


def _packed(
    rows: Sequence[Row], methods: Sequence[Variant], order: Sequence[str]
) -> dict[str, Any]:
    """Return the JSON content: names of methods, columns, and the rows of each pair.

    A pair's key has the numbers of both methods in `methods`. Its rows list the number of the
    column, both values, the difference with its interval, p or q and the verdict on the first
    method.
    """
    several = len({(row["benchmark"], row["profile"]) for row in rows}) > len(
        {row["benchmark"] for row in rows}
    )
    rows = sorted(rows, key=lambda row: (order.index(row["benchmark"]), row["eval_length"]))
    columns = list(dict.fromkeys(_column(row, several) for row in rows))
    numbers = {one: number for number, one in enumerate(methods)}
    pairs = {
        f"{numbers[first]} {numbers[second]}": [
            [
                columns.index(_column(row, several)),
                formats.score(row["value"]),
                formats.score(row["other_value"]),
                formats.difference(row["difference"] + 0.0, row["ci_low"], row["ci_high"]),
                formats.p_value(row["p_adjusted"], row["family"]),
                row["verdict"],
            ]
            for row in own
        ]
        for (first, second), own in grouped(rows, Variant.pair).items()
    }
    return {"methods": [one.label for one in methods], "columns": columns, "pairs": pairs}


def _column(row: Row, with_profile: bool) -> tuple[str, str]:
    profile = f" ({row['profile']})" if with_profile else ""
    return row["benchmark"].replace("_", " ") + profile, f"{row['eval_length']:,}"


def short_context(contents: Contents) -> Markup:
    rows = contents.short_context
    if not rows:
        return Markup()
    table = short_table(rows, duplicates(contents))
    return paragraph(short_caption(rows)) + table.saved(SHORT_CONTEXT)


def short_caption(rows: Sequence[Row]) -> str:
    number = Counter(_VERDICTS[row["outcome"]] for row in rows)
    counts = ", ".join(f"{number[one]} {one}" for one in _VERDICTS.values() if number[one])
    sizes = (
        f"{100 * row['margin']:g} % of a perplexity" if row["is_ratio"] else f"{row['margin']:g}"
        for row in rows
    )
    margins = " or ".join(dict.fromkeys(sizes))
    late = sum(row["family"] != "short context" for row in rows)
    note = f" {late} were added after a result, so they are exploratory." if late else ""
    return (
        "Each method minus the untuned base model, at the longest evaluated length within its"
        " trained context. Not worse: the 95 % interval excludes a disadvantage"
        f" of {margins}. Worse: the whole interval exceeds this disadvantage. {counts}"
        f".{note}{_NEEDED if number['undecided'] else ''}"
    )


def short_table(rows: Sequence[Row], same: Mapping[Variant, Variant]) -> Table:
    columns = list(dict.fromkeys(map(_where, rows)))
    cells = {(Variant.of(row), _where(row)): _outcome(row) for row in rows}
    return Table(
        ("method", *columns),
        [
            (one, *(cells.get((one, column), "") for column in columns))
            for one in dict.fromkeys(map(Variant.of, rows))
        ],
        same,
    )


def _where(row: Row) -> str:
    return f"{row['benchmark'].replace('_', ' ')}, {row['eval_length']:,} tokens"


def _outcome(row: Row) -> str:
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


def papers(contents: Contents) -> Markup:
    if not contents.run[0]["done"]:
        return Markup()
    if not contents.papers:
        return paragraph(_NO_PAPER)
    rows = [{**row, "weights": weights_label(row["frozen"])} for row in contents.papers]
    beside = Table.of(rows, _BESIDE)
    shown = paragraph("Accuracies range from 0 to 1. Differences are ours minus the paper's.")
    shown += beside.saved("papers beside ours")
    if contents.agreement:
        names = [name for name in contents.agreement[0] if name not in ("study", "base_model")]
        heads = {name: name.replace("_", " ") for name in names}
        agreement = Table.of(contents.agreement, heads)
        shown += Markup("<h3>Rank agreement</h3>") + agreement.saved("order in papers")
    return shown
