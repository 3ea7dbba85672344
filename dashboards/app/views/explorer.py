"""Page: any score or cost against any dimension, score or cost, as charts and a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import altair as alt
import streamlit as st

from dashboards.app.catalog import Chosen
from dashboards.app.points import DIMENSIONS, Measure, Points, dimension, measures, points
from dashboards.app.tables import colour, of_look, picker, table
from dashboards.contents import Row, grouped
from dashboards.families import NO_EXTENSION, OTHERS, TITLES, Variant, method_looks
from lce_core.study.variants import CONTROL

WIDTH, HEIGHT = 290, 320
LEGEND_ROW, MARK_STROKE = 26, 1.4
_NUMBERS = ("eval_length", "train_length", "seed")
_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
_NUM_COLOURS = 6
_NONE = "nothing"
_FAMILIES = {CONTROL: NO_EXTENSION, **TITLES, "other": OTHERS}


class _Style(NamedTuple):
    colour: str
    shape: str
    frozen: bool = False


def page(chosen: Chosen) -> None:
    rows = chosen.rows("cell_scores")
    known = {measure.name: measure for measure in measures(rows)}
    pick = picker(st.container(horizontal=True), 240)
    y = known[pick("Vertical axis", list(known), key="y")]
    names = {name: key for key, name in DIMENSIONS.items()}
    across = [*names, *known]
    x = pick("Horizontal axis", across, index=1, key="x")
    hue = names[pick("Colour", list(names), key="hue", width=170)]
    panel = names.get(pick("Panels", [_NONE, *names], index=3, key="panel", width=170))
    kept = _kept(rows, y)
    per_point = ["variant", "eval_length"] if x in known else []
    by = list(dict.fromkeys(name for name in (names.get(x), hue, panel, *per_point) if name))
    if "variant" in by and "family" not in by:
        by.append("family")  # one per method
    found = points(kept, by, y, known.get(x))
    _notes(found, by, y, hue)
    if not found.drawn:
        st.info("Nothing to draw: every point has a cell that is not done.")
        return
    axes = _Axes(y, x, names.get(x), known.get(x), hue, panel)
    drawn = _in_runs(found, axes.dimension or "") if axes.is_line else found.drawn
    _panels(drawn, axes, _of_methods(chosen) if hue == "variant" else {})
    with st.expander("Table"):
        heads = {name: DIMENSIONS[name] for name in by}
        heads |= {"x": x} if x in known else {}
        table(found.drawn, {**heads, "y": y.name, "num_cells": "cells"}, "points")


def _of_methods(chosen: Chosen) -> dict[str, _Style]:
    looks = method_looks(chosen.rows("overview"), chosen.rows("families"))
    return {
        one.label: _Style(of_look(looks[one.method]), _SHAPES[looks[one.method].shape], one.frozen)
        for one in chosen.variants()
    }


def _kept(rows: list[Row], y: Measure) -> list[Row]:
    mine = [row for row in rows if y.benchmark in (None, row["benchmark"])]
    with st.expander("Filter by method, task, length or seed"):
        for name in ("variant", "task", "eval_length", "seed"):
            options = list(dict.fromkeys(dimension(row, name) for row in mine))
            wanted = st.multiselect(
                DIMENSIONS[name], options, key=f"only_{name}", bind="query-params"
            )
            if wanted:
                # Values of a task concern only the benchmark of `y`; rows of others stay.
                shared = name != "task" or y.benchmark is None
                rows = [
                    row
                    for row in rows
                    if dimension(row, name) in wanted
                    or not (shared or row["benchmark"] == y.benchmark)
                ]
    return rows


def _notes(found: Points, by: Sequence[str], y: Measure, hue: str) -> None:
    parts = ("task", "seed", "eval_length", *["benchmark"] * (y.benchmark is None))
    over = [name for name in parts if name not in by]
    names = ", ".join(f"{DIMENSIONS[name].partition(' (')[0]}s" for name in over)
    words = [f"Mean over {names}."] if over else []
    if y.higher_is_better is not None:
        words.append(f"{'Higher' if y.higher_is_better else 'Lower'} is better.")
    if hue == "variant":
        words.append("Hollow marks and dashed lines: frozen weights.")
    if found.gaps:
        words.append(f"{len(found.gaps)} points are not drawn: some of their cells are not done.")
    st.caption(" ".join(words))
    if found.uneven:
        st.warning(
            "These means are not comparable: they are over different tasks, seeds or lengths."
            " Filter these dimensions above, or select one as an axis."
        )


@dataclass(frozen=True)
class _Axes:
    """Columns that a chart shows on its axes, by colour (`hue`) and by panel.

    The horizontal axis is either the dimension or the measure; the other of the two is None.
    """

    y: Measure
    name: str
    dimension: str | None
    measure: Measure | None
    hue: str
    panel: str | None

    @property
    def is_line(self) -> bool:
        return self.dimension in _NUMBERS


def _in_runs(found: Points, along: str) -> list[dict[str, Any]]:
    """Return the points with their number of gaps before them, so that no line crosses a gap."""

    def line(point: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(point[name] for name in DIMENSIONS if name in point and name != along)

    gaps = grouped(found.gaps, line)
    return [
        {**point, "run": sum(gap[along] < point[along] for gap in gaps.get(line(point), ()))}
        for point in found.drawn
    ]


def _panels(drawn: list[dict[str, Any]], axes: _Axes, styles: Mapping[str, _Style]) -> None:
    # The control belongs to no family: repeat it in grey in each panel.
    shared = axes.panel == "family" and axes.hue == "variant"
    controls = [Variant(CONTROL, frozen).label for frozen in (True, False)]
    control = [point for point in drawn if shared and point["variant"] in controls]
    others = [point for point in drawn if point not in control]
    by_panel = grouped(others, axes.panel or (lambda _: "")) or {"": []}
    everything = list(dict.fromkeys(point[axes.hue] for point in drawn))
    ys = [point["y"] for point in drawn]
    domain = [min(ys), max(ys)]  # of the vertical axis of every panel
    kinds = [{point[axes.hue] for point in some} for some in by_panel.values()]
    disjoint = sum(map(len, kinds)) == len(everything)
    place = st.container(horizontal=True)
    for value, some in sorted(by_panel.items(), key=lambda item: _order(axes.panel, item[0])):
        mine = list(dict.fromkeys(point[axes.hue] for point in some))
        # A method has its own style; other values share colours between panels if they can.
        hues = styles or _hues(mine if disjoint else everything)
        one = place.container(width=WIDTH if axes.panel else "stretch")
        if axes.panel:
            one.text(_title(axes.panel, value))
        one.altair_chart(_chart([*control, *some], axes, hues, domain), key=f"of {value}")


def _hues(values: Sequence[Any]) -> dict[Any, _Style]:
    return {
        value: _Style(
            colour(f"c{number % _NUM_COLOURS}"), _SHAPES[number // _NUM_COLOURS % len(_SHAPES)]
        )
        for number, value in enumerate(values)
    }


def _order(panel: str | None, value: Any) -> Any:
    if panel != "family":
        return value
    return list(_FAMILIES).index(value) if value in _FAMILIES else len(_FAMILIES)


def _title(panel: str, value: Any) -> str:
    if panel == "family":
        return _FAMILIES.get(value, OTHERS)
    number = isinstance(value, int) and panel != "seed"
    return f"{DIMENSIONS[panel].partition(' (')[0]} {f'{value:,}' if number else value}"


def _scale(measure: Measure, domain: list[float]) -> alt.Scale:
    if measure.is_logarithmic and domain[0] > 0:
        return alt.Scale(type="log", domain=domain, nice=False)
    room = (domain[1] - domain[0] or 1.0) * 0.04
    return alt.Scale(domain=[domain[0] - room, domain[1] + room], zero=False, nice=False)


def _chart(
    drawn: list[dict[str, Any]], axes: _Axes, hues: Mapping[Any, _Style], domain: list[float]
) -> alt.LayerChart | alt.FacetChart:
    names = [value for value in hues if any(point[axes.hue] == value for point in drawn)]
    tooltips = [
        alt.Tooltip(f"{name}:{'Q' if name in _NUMBERS else 'N'}", title=DIMENSIONS[name])
        for name in drawn[0]
        if name in DIMENSIONS
    ]
    tooltips.append(alt.Tooltip("y:Q", title=axes.y.name, format=".5~g"))
    tooltips += [alt.Tooltip("x:Q", title=axes.name, format=".5~g")] if axes.measure else []
    tooltips.append(alt.Tooltip("num_cells:Q", title="cells"))
    columns = 1 if axes.panel else 6
    styles = [hues[name] for name in names]
    field: dict[str, Any] = {"shorthand": f"{axes.hue}:N", "sort": names}
    legend = alt.Legend(
        title=None,
        orient="bottom",
        columns=columns,
        symbolLimit=60,
        symbolStrokeWidth=MARK_STROKE,
        labelLimit=200,
    )

    def scale(values: list[Any]) -> alt.Scale:
        return alt.Scale(domain=names, range=values)

    colours = scale([one.colour for one in styles])
    fills = scale([colour("page") if one.frozen else one.colour for one in styles])
    base = alt.Chart(alt.Data(values=drawn)).encode(
        x=_x(drawn, axes),
        y=alt.Y("y:Q", title=axes.y.name, scale=_scale(axes.y, domain)),
        stroke=alt.Stroke(**field, scale=colours, legend=legend),
        tooltip=tooltips,
    )
    marks = base.mark_point(size=45, opacity=1, strokeWidth=MARK_STROKE).encode(
        fill=alt.Fill(**field, scale=fills, legend=legend),
        shape=alt.Shape(**field, scale=scale([one.shape for one in styles]), legend=legend),
    )
    layers = [marks]
    if axes.is_line:
        others = [name for name in drawn[0] if name in DIMENSIONS and name != axes.dimension]
        apart = [f"{name}:N" for name in (*others, "run")]
        frozen = [name for name in names if hues[name].frozen]
        # A scale of dashes would also dash the outlines of the legend's symbols.
        dashes = alt.condition(
            alt.FieldOneOfPredicate(field=axes.hue, oneOf=frozen),
            alt.value([5, 3]),
            alt.value([1, 0]),
        )
        lines = base.mark_line(strokeWidth=1.8).encode(detail=apart, strokeDash=dashes)
        layers.insert(0, lines)
    height = HEIGHT + LEGEND_ROW * -(-len(names) // columns)
    return alt.layer(*layers).properties(height=height)


def _x(drawn: list[dict[str, Any]], axes: _Axes) -> alt.X:
    if axes.measure:
        values = [point["x"] for point in drawn]
        return alt.X("x:Q", title=axes.name, scale=_scale(axes.measure, [min(values), max(values)]))
    name = axes.dimension or ""
    steps = sorted({point[name] for point in drawn}) if name.endswith("_length") else []
    if len(steps) > 1:
        scale = alt.Scale(type="log", base=2, domain=[steps[0], steps[-1]], nice=False)
        return alt.X(f"{name}:Q", title=axes.name, scale=scale, axis=alt.Axis(values=steps))
    return alt.X(f"{name}:N", title=axes.name, axis=alt.Axis(labelAngle=-40))
