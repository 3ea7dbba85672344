"""Sections with heat maps: scores by method and length, needles found by length and depth."""

import math
from collections.abc import Mapping, Sequence
from typing import get_args

from markupsafe import Markup

from dashboards.charts.heat_map import Field, HeatMap, depth_grid_svg, heat_map_svg, ramp_html
from dashboards.contents import Contents, Row, grouped, select
from dashboards.families import (
    Family,
    Variant,
    benchmark_label,
    comparable,
    duplicates,
    families,
    groups,
    ordered,
)
from dashboards.figure import Table, code, figure
from dashboards.sections import tasks
from lce_core import formats
from lce_core.kinds import Kind
from lce_core.study.variants import weights_label

MEASURES = ("perplexity", *[kind for kind in get_args(Kind) if kind != "text"])
WORST = 1.5
"""Perplexities of at least this many times the best in their column have the worst colour."""
PADDING = 42.0
MOST_FRAMES = 3
"""The best value of a column is framed only if at most this many methods share it."""
_NEEDLES = {
    "method": "method", "weights": "weights", "eval_length": "length", "depth": "depth in %",
    "value": "found", "num_samples": "samples",
}  # fmt: skip
Won = Mapping[Variant, float]
"""Share of comparisons that a method wins, from 0 to 1."""
_ABSENT = {"failed": "failed", "missing": "-", "unavailable": "n/a"}


def glance(contents: Contents) -> Markup:
    won = {
        name: {Variant.of(row): row["won"] for row in select(contents.standing, measure=name)}
        for name in MEASURES
    }
    in_order = _ordered(contents, won)
    rows = comparable(contents.benchmarks, contents.scores)
    maps: list[tuple[float, Markup]] = []
    # Rows without a result have no unit, so the measure of a benchmark is that of its results.
    begun = {
        row["benchmark"]: row["unit"] if row["kind"] == "text" else row["kind"]
        for row in rows
        if row["value_of_done"] is not None
    }
    for name in MEASURES:
        shown = [row for row in rows if begun.get(row["benchmark"]) == name]
        if shown:
            maps.append(_map(contents, name, shown, in_order, won[name]))
    if not maps:
        return Markup()
    widest = max(maps)
    maps.sort(key=lambda one: one is widest)  # so that the others share rows
    part = Markup('<div style="flex: {0:g} 1 {0:g}px">{1}</div>')
    return Markup('<div class="glance">{}</div>').format(
        Markup("").join(part.format(width + PADDING, shown) for width, shown in maps)
    )


def _ordered(contents: Contents, won: Mapping[str, Won]) -> list[Family]:
    """Return the controls, then the families, the best family and its best member first.

    A variant is as good as the share of comparisons that it wins, a family as its best member.
    """

    def share(one: Variant) -> float:
        known = [shares[one] for shares in won.values() if one in shares]
        return sum(known) / len(known) if known else -1.0

    found = [
        Family(one.key, one.title, tuple(sorted(one.variants, key=share, reverse=True)))
        for one in families(contents)
    ]
    found.sort(key=lambda family: share(family.variants[0]), reverse=True)
    return [*(one for one in groups(contents) if one.key == "control"), *found]


def _map(
    contents: Contents, name: str, rows: Sequence[Row], in_order: Sequence[Family], won: Won
) -> tuple[float, Markup]:
    same = duplicates(contents)
    shown_map = heat_map(contents, name, rows, in_order, won)
    trained = shown_map.trained
    better = "lower" if name == "perplexity" else "higher"
    beyond = f" beyond the trained context of {trained:,} tokens (the line)" if trained else ""
    means = ""
    if name == "perplexity":
        means = (
            " Values are arithmetic means over tasks and seeds; comparisons use geometric means,"
            " which are slightly smaller."
        )
    caption = Markup(
        f"{better.capitalize()} is better.{means} Frame: best in its column, if at most"
        f" {MOST_FRAMES} methods share the value. <i>Won</i>: share of comparisons with other"
        f" methods that a method wins{beyond}. A family's methods are sorted by their mean share"
        " over all maps."
    )
    ends = ("0", "1")
    if name == "perplexity":
        ends = (f"{WORST:g} x the best or worse", "best in its column")
    columns = [(block, length) for block, lengths in shown_map.blocks.items() for length in lengths]
    values = {place: field.value for place, field in shown_map.fields.items()}
    table = Table(
        ("method", "family", *(f"{block}, {length:,}" for block, length in columns), "won"),
        [
            (one, family.title, *(values.get((one, *at)) for at in columns), won.get(one))
            for family in shown_map.families
            for one in family.variants
        ],
        same,
    )
    pictures = [heat_map_svg(shown_map)]
    sentence = Markup(" {} is the same computation as {}.")
    for one, first in same.items():
        caption += sentence.format(code(one.label), code(first.label))
    caption += tasks.links(contents, dict.fromkeys(row["benchmark"] for row in rows))
    caption += ramp_html(*ends)
    return shown_map.width, figure(name.capitalize(), caption, pictures, table, "wide")


def heat_map(
    contents: Contents,
    title: str,
    rows: Sequence[Row],
    in_order: Sequence[Family] | None = None,
    won: Won | None = None,
) -> HeatMap:
    """Return the heat map of these rows; by default, in the order of the groups of methods."""
    kinds = {row["benchmark"]: row["kind"] for row in rows}
    lengths = {
        one: sorted({row["eval_length"] for row in select(rows, benchmark=one)}) for one in kinds
    }
    # Retrieval benchmarks come last, those with the most lengths first.
    names = sorted(
        kinds,
        key=lambda one: (True, -len(lengths[one]), one) if kinds[one] == "retrieval" else (False,),
    )
    fields = {}
    for row in rows:
        column = select(rows, benchmark=row["benchmark"], eval_length=row["eval_length"])
        known = [other["value"] for other in column if other["value"] is not None]
        best = select(column, is_best=True)
        fields[Variant.of(row), benchmark_label(row["benchmark"]), row["eval_length"]] = _field(
            row, known, is_framed=row in best and len(best) <= MOST_FRAMES
        )
    asked = {variant for variant, _, _ in fields}
    shown = [
        Family(family.key, family.title, members)
        for family in (groups(contents) if in_order is None else in_order)
        if (members := tuple(one for one in family.variants if one in asked))
    ]
    blocks = {benchmark_label(one): lengths[one] for one in names}
    trained = contents.studies[0]["trained_context"]
    return HeatMap(title, blocks, shown, fields, won or {}, trained)


def _field(row: Row, known: Sequence[float], is_framed: bool) -> Field:
    what = f"{Variant.of(row).label}, {benchmark_label(row['benchmark'])} at {row['eval_length']:,}"
    if row["value"] is None:
        status = (row.get("status") or "missing").partition(",")[0]
        part = row["value_of_done"]
        mean = "" if part is None else f"; mean over the finished cells: {formats.score(part)}"
        return Field(_ABSENT.get(status, "-"), f"{what}: {row['missing']}{mean}")
    value = row["value"]
    tooltip = f"{what}: {formats.score(value)}"
    return Field(formats.short_score(value), tooltip, value, _level(row, known), is_framed)


def _level(row: Row, known: Sequence[float]) -> float:
    value: float = row["value"]
    if row["higher_is_better"]:
        return min(1.0, max(0.0, value))
    best = min(known)
    if best <= 0 or value <= 0:
        return 1.0 if value == best else 0.0
    return max(0.0, 1 - math.log(value / best) / math.log(WORST))


def needles(contents: Contents) -> Markup:
    found = grouped(contents.depths, "benchmark", "task")
    alone, methods = len(found) == 1, ordered(contents)
    return Markup("").join(
        _grids("" if alone else f": {benchmark}/{task}".replace("_", " "), methods, rows)
        for (benchmark, task), rows in found.items()
    )


def _grids(of: str, methods: Sequence[Variant], rows: Sequence[Row]) -> Markup:
    lengths = sorted({row["eval_length"] for row in rows})
    depths = sorted({row["depth"] for row in rows})
    found = grouped(rows, Variant.of)
    pictures = [
        depth_grid_svg(
            one, lengths, depths, {(row["eval_length"], row["depth"]): row["value"] for row in mine}
        )
        for one in methods
        if (mine := found.get(one))
    ]
    labelled = [{**row, "weights": weights_label(row["frozen"])} for row in rows]
    table = Table.of(labelled, _NEEDLES)
    caption = Markup(
        "Columns: length in tokens. Rows: position of the needle, from the start of the text to its"
        " end. Colour: share of needles found."
    ) + ramp_html("none", "all")
    return figure(f"Needles by length and depth{of}", caption, pictures, table, "grids")
