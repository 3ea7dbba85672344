"""Build figures of line charts with one panel per family of methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dashboards.charts.line_panel import Axes, line_panel_svg
from dashboards.charts.lines import Line, whisker
from dashboards.contents import Contents
from dashboards.families import (
    NO_EXTENSION,
    Family,
    Variant,
    controls,
    families,
    method_looks,
    panels,
)
from dashboards.figure import Ranged, Table


def family_panels(contents: Contents, axes: Axes, lines: Mapping[Variant, Line]) -> list[str]:
    """Return an SVG panel per family, with the controls in grey behind its lines.

    If no family has a line, return one panel with only the controls, if they have lines. The lines
    decide `xs`, `ys` and `legend_lines` of the axes.
    """
    drawn = {one: line for one, line in lines.items() if line.ends}
    if not drawn:
        return []
    behind = [drawn[one] for one in controls(contents) if one in drawn]
    parts = panels(families(contents), list(drawn))
    longest = max((len(part.variants) for part in parts), default=0) + len(behind)
    axes = replace(
        axes,
        xs=[float(x) for line in drawn.values() for x, _ in line.ends],
        ys=[y for line in drawn.values() for y in line.ys],
        legend_lines=-(-longest // 2),
    )
    looks = method_looks(contents.overview, contents.families)
    return [
        line_panel_svg(axes, part.title, [drawn[one] for one in part.variants], behind, looks)
        for part in parts or [Family("control", NO_EXTENSION, ())]
    ]


def lines_table(lines: Mapping[Variant, Line], y_name: str, x_name: str) -> Table:
    """Return a table of the values `y_name` with a row per line and a column per x."""
    drawn = {one: line.points for one, line in lines.items() if line.points}
    xs = sorted({point["x"] for points in drawn.values() for point in points})
    rows = []
    for one, points in drawn.items():
        found = {point["x"]: Ranged(point["y"], *whisker(point)) for point in points}
        rows.append((one, *map(found.get, xs)))
    return Table((f"method ({y_name} by {x_name})", *(f"{x:,}" for x in xs)), rows)
