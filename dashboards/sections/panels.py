"""Build figures of line charts with one panel per family of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dashboards.charts.line_panel import Axes, line_panel_svg
from dashboards.charts.lines import Gap, Line, Point
from dashboards.contents import Contents, Row
from dashboards.families import (
    NO_EXTENSION,
    Variant,
    controls,
    families,
    method_looks,
    panels,
)
from dashboards.figure import Ranged, Table


def lines_of(rows: Sequence[Row], x: str, value: str) -> dict[Variant, Line]:
    """Return a `Line` per variant; a row whose value is None becomes a gap of the line.

    Args:
      rows: rows with columns `method`, `frozen` and `num_seeds`. A row whose value is None also
        needs `value_of_done`, `num_planned` and `missing`, as in the view score_by_length.
      x: name of the column for x.
      value: name of the column for y.
    """
    lines = {}
    for one in dict.fromkeys(map(Variant.of, rows)):
        mine = sorted((row for row in rows if Variant.of(row) == one), key=lambda row: row[x])
        points = tuple(
            Point(
                row[x],
                row[value],
                row["lowest"] if "lowest" in row else row[value],
                row["highest"] if "highest" in row else row[value],
                row["num_seeds"],
                row.get("interval"),
                row.get("num_prompts"),
            )
            for row in mine
            if row[value] is not None
        )
        gaps = tuple(
            Gap(row[x], row["value_of_done"], row["num_seeds"], row["num_planned"], row["missing"])
            for row in mine
            if row[value] is None
        )
        lines[one] = Line(one.method, one.frozen, points, gaps)
    return lines


def family_panels(
    contents: Contents, axes: Axes, lines: Mapping[Variant, Line], with_controls: bool = True
) -> list[str]:
    """Return an SVG panel per family, with the controls in grey behind its lines.

    If no family has a line, return one panel with only the controls, if they have lines.

    Args:
      axes: axes of the figure; this function sets `xs`, `ys` and `legend_lines`.
      lines: lines by variant.
      with_controls: False to omit the controls.
    """
    drawn = {one: line for one, line in lines.items() if line.ends}
    if not drawn:
        return []
    behind = [drawn[one] for one in controls(contents) if with_controls and one in drawn]
    parts = panels(families(contents), list(drawn))
    longest = max((len(part.variants) for part in parts), default=0) + len(behind)
    axes = replace(
        axes,
        xs=[float(x) for line in drawn.values() for x, _ in line.ends],
        ys=[y for line in drawn.values() for y in _ys(line)],
        legend_lines=-(-longest // 2),
    )
    looks = method_looks(contents.overview, contents.families)
    if not parts:
        return [line_panel_svg(axes, NO_EXTENSION, [], behind, looks)] if behind else []
    return [
        line_panel_svg(axes, part.title, [drawn[one] for one in part.variants], behind, looks)
        for part in parts
    ]


def lines_table(lines: Mapping[Variant, Line], y_name: str, x_name: str) -> Table:
    """Return a table with a row per line and a column per x.

    Args:
      lines: lines by variant.
      y_name: name of the values.
      x_name: name of x.
    """
    drawn = {one: line.points for one, line in lines.items() if line.points}
    xs = sorted({point.x for points in drawn.values() for point in points})
    rows = []
    for one, points in drawn.items():
        found = {point.x: Ranged(point.value, *point.whisker) for point in points}
        rows.append((one, *map(found.get, xs)))
    return Table((f"method ({y_name} by {x_name})", *(f"{x:,}" for x in xs)), rows)


def _ys(line: Line) -> list[float]:
    ranges = [y for point in line.points for y in point.whisker]
    return [*ranges, *(y for _, y in line.ends)]
