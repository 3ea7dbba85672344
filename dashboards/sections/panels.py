"""Small multiples by family: what the sections with lines share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dashboards.charts.line_panel import Axes, line_panel_svg
from dashboards.charts.lines import Gap, Line, Point
from dashboards.contents import Contents, Row
from dashboards.families import NO_EXTENSION, Variant, controls, families, panels
from dashboards.figure import Table


def lines_of(rows: Sequence[Row], x: str, value: str) -> dict[Variant, Line]:
    """A line for each variant; rows without a value are gaps.

    Args:
      rows: with `num_seeds`, and, where values may be missing, the columns of score_by_length.
      x: column of x.
      value: column of y.
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
    """A panel for each family, with the controls in grey; those alone where there is nothing else.

    Args:
      contents: of one base model.
      axes: of the figure; `xs`, `ys` and `legend_lines` are set here.
      lines: by variant.
      with_controls: whether the controls' lines are drawn.
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
    if not parts:
        return [line_panel_svg(axes, NO_EXTENSION, [], behind, {})] if behind else []
    colours: dict[str, int] = {}
    for family in families(contents):
        methods = dict.fromkeys(one.method for one in family.variants)
        colours |= {method: number for number, method in enumerate(methods)}
    return [
        line_panel_svg(axes, part.title, [drawn[one] for one in part.variants], behind, colours)
        for part in parts
    ]


def lines_table(
    lines: Mapping[Variant, Line],
    x_name: str,
    y_name: str,
    counted: str = "seed",
    whiskers: tuple[str, str] = ("lowest seed", "highest seed"),
) -> Table:
    """The points of all lines: means of what is `counted`, with whiskers that end at `whiskers`."""
    return Table(
        ("method", "weights", x_name, y_name, *whiskers, f"{counted}s"),
        [
            (
                one.method,
                "frozen" if one.frozen else "tuned",
                point.x,
                point.value,
                point.lowest,
                point.highest,
                point.num_seeds,
            )
            for one, line in lines.items()
            for point in line.points
        ],
    )


def _ys(line: Line) -> list[float]:
    ranges = [y for point in line.points for y in (point.lowest, point.highest)]
    return [*ranges, *(y for _, y in line.ends)]
