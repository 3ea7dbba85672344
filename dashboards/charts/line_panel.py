"""Line charts: the points of each method, and a panel as SVG with coloured lines.

If seeds are missing at a point, the line is interrupted there, and a small cross shows the mean
over the finished seeds.
"""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from catalog.palette import Look
from dashboards.charts import scales
from dashboards.charts.marks import SHAPES, colours, mark_data, opening, row_data, text, ticked
from dashboards.contents import Row, grouped
from dashboards.families import Variant
from lce_core import formats
from lce_core.study.variants import weights_label

WIDTH, PLOT = 340.0, 170.0
LEFT, RIGHT, BOTTOM = 42.0, 12.0, 40.0
LEGEND, LEGEND_LINE = 24.0, 15.0
SPOT = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"
"""SVG path of an invisible circle, which shows the tooltip of a point without a mark."""
CROSS = "M-3.5-3.5L3.5 3.5M-3.5 3.5L3.5-3.5"


@dataclass(frozen=True)
class Line:
    """Rows of one variant, sorted by `x`.

    A row whose `y`, a mean over all planned seeds or cells, is None is a gap and interrupts the
    line.
    """

    variant: Variant
    rows: Sequence[Row]

    @property
    def points(self) -> list[Row]:
        return [row for row in self.rows if row["y"] is not None]

    @property
    def ends(self) -> list[tuple[int, float]]:
        """(x, y) of everything drawn: the points, and the means over the finished seeds of gaps."""
        found = [(row["x"], row["value_of_done" if row["y"] is None else "y"]) for row in self.rows]
        return [(x, y) for x, y in found if y is not None]

    @property
    def ys(self) -> list[float]:
        return [y for _, y in self.ends] + [y for point in self.points for y in whisker(point)]


def lines_of(rows: Sequence[Row], x: str, y: str) -> dict[Variant, Line]:
    return {
        one: Line(
            one, [{**row, "x": row[x], "y": row[y]} for row in sorted(own, key=itemgetter(x))]
        )
        for one, own in grouped(rows, Variant.of).items()
    }


def whisker(point: Row) -> tuple[float, float]:
    """Return the ends of the whisker: the interval if it is known, or else the range of seeds."""
    if point.get("ci_low") is not None:
        return point["ci_low"], point["ci_high"]
    return seed_range(point)


def seed_range(point: Row) -> tuple[float, float]:
    if "lowest" in point:
        return point["lowest"], point["highest"]
    return point["y"], point["y"]


@dataclass(frozen=True)
class Axes:
    """Axes and labels that the panels of a figure share."""

    title: str
    x_name: str
    y_name: str
    landmarks: Mapping[str, int | None] = field(default_factory=dict)
    """Vertical lines to draw: x by name; a line whose x is None is not drawn."""
    levels: Mapping[str, float | None] = field(default_factory=dict)
    """Horizontal lines to draw: y by name; a line whose y is None is not drawn."""
    x_scale: Callable[[Sequence[float], float, float], scales.WithTicks] = scales.lengths
    log_y: bool = False
    marks: bool = True
    counted: str = "seed"
    """Unit, in the singular, over which each point is a mean, for tooltips: "seed" or "cell"."""


def line_panel_svg(
    axes: Axes,
    name: str,
    lines: Sequence[Line],
    behind: Sequence[Line],
    looks: Mapping[str, Look],
    every: Sequence[Line],
    legend_lines: int,
) -> str:
    """Return the panel, with the lines `behind` in grey; its figure has the lines `every`."""
    top = LEGEND + LEGEND_LINE * legend_lines + 30
    base = top + PLOT
    xs = [float(x) for line in every for x, _ in line.ends]
    ys = [y for line in every for y in line.ys]
    ys += [level for level in axes.levels.values() if level is not None]
    make_y = scales.logarithmic if axes.log_y and min(ys) > 0 else scales.linear
    x, x_ticks = axes.x_scale(xs, LEFT + 8, WIDTH - RIGHT - 8)
    y, y_ticks = make_y(ys, base, top)
    axes = replace(axes, x_name=scales.name(axes.x_name, x), y_name=scales.name(axes.y_name, y))
    known = {
        "x": axes.x_name, "y": axes.y_name, "log_x": x.logarithmic, "log_y": y.logarithmic,
        "landmarks": axes.landmarks, "levels": axes.levels,
    }  # fmt: skip
    parts = [
        opening(
            f"{axes.title}: {name}", WIDTH, base + BOTTOM, "line-panel", axes=json.dumps(known)
        ),
        text(name, 0, 13, "panel-title"),
        *_legend([*lines, *behind], looks),
        *_grid(axes, (x, x_ticks), (y, y_ticks), top, base),
    ]
    for line in [*behind, *lines]:
        parts += _line(axes, line, looks[line.variant.method], x, y)
    return "\n".join([*parts, "</svg>"])


def _classes(one: Variant) -> str:
    return f"look {'control ' * one.is_control}{weights_label(one.frozen)}"


def _legend(lines: Sequence[Line], looks: Mapping[str, Look]) -> list[str]:
    parts = []
    for number, one in enumerate(line.variant for line in lines):
        left = (number % 2) * WIDTH / 2
        y = LEGEND + LEGEND_LINE * (number // 2) + 6
        look = looks[one.method]
        parts.append(
            f'<g class="key {_classes(one)}" {colours(look)} {row_data(one)}>'
            f'<path class="stroke" d="M{left:g} {y:g}h20"/>'
            f'<path class="mark" transform="translate({left + 10:g} {y:g})"'
            f' d="{SHAPES[look.shape]}"/>'
            f"{text(one.label, left + 25, y + 4, room=WIDTH / 2 - 32)}</g>"
        )
    return parts


def _grid(
    axes: Axes, across: scales.WithTicks, up: scales.WithTicks, top: float, base: float
) -> list[str]:
    (x, _), (y, _) = across, up
    parts = [text(axes.y_name, 0, top - 19, "tick")]
    parts += ticked(across, up, LEFT, WIDTH - RIGHT, base)
    for name, value in axes.landmarks.items():
        if value is not None and x.low <= value <= x.high:
            at = x(value)
            parts.append(f'<path class="landmark" d="M{at:g} {top - 12:g}V{base:g}"/>')
            # Write the name above the plot, clear of marks at the upper edge. Near the right edge,
            # write it left of the line, because it does not fit on the right.
            side, anchor = (3, "start") if at < WIDTH - 70 else (-3, "end")
            parts.append(text(name, at + side, top - 4, f"tick landmark-name {anchor}"))
    for name, level in axes.levels.items():
        if level is not None:
            parts.append(f'<path class="landmark" d="M{LEFT:g} {y(level):g}H{WIDTH - RIGHT:g}"/>')
            parts.append(text(name, WIDTH - RIGHT, y(level) - 4, "tick landmark-name end"))
    parts.append(text(axes.x_name, WIDTH - RIGHT, base + 33, "tick end"))
    return parts


def _line(axes: Axes, line: Line, look: Look, x: scales.Scale, y: scales.Scale) -> list[str]:
    one = line.variant
    own = f'{colours(look)} data-series="{one.label}" {row_data(one)}'
    parts = [f'<g class="series {_classes(one)}" {own}>']
    # A line joins the points of a run; each gap starts a new run.
    groups = itertools.groupby(line.rows, lambda row: row["y"] is None)
    runs = [list(run) for is_gap, run in groups if not is_gap]
    for run in runs:
        path = "L".join(f"{x(point['x']):g} {y(point['y']):g}" for point in run)
        parts.append(f'<path class="stroke" d="M{path}"/>')
    for number, point in ((n, point) for n, run in enumerate(runs) for point in run):
        low, high = whisker(point)
        if axes.marks and low < high:
            cap = "m-3 0h6m-3 0"
            ends = f"M{x(point['x']):g} {y(low):g}{cap}V{y(high):g}{cap}"
            parts.append(f'<path class="range" d="{ends}"/>')
        shape = f'mark" d="{SHAPES[look.shape]}' if axes.marks else f'spot" d="{SPOT}'
        at = f"translate({x(point['x']):g} {y(point['y']):g})"
        facts = {"x": point["x"], "value": point["y"], "lowest": low, "highest": high}
        data = mark_data(one, _sentence(axes, one, point), **facts, run=number or None)
        parts.append(f'<path class="{shape}" transform="{at}" {data}/>')
    for gap in line.rows:
        if gap["y"] is None and gap["value_of_done"] is not None:
            done = f"{gap['num_seeds']} of {gap['num_planned']} {axes.counted}s"
            sentence = (
                f"{one.label} at {gap['x']:,}: {done} done, mean of these"
                f" {formats.score(gap['value_of_done'])}; {gap['missing']}"
            )
            at = f"translate({x(gap['x']):g} {y(gap['value_of_done']):g})"
            data = mark_data(one, sentence, x=gap["x"], value_of_done=gap["value_of_done"])
            parts.append(f'<path class="gap" d="{CROSS}" transform="{at}" {data}/>')
    return [*parts, "</g>"]


def _sentence(axes: Axes, one: Variant, point: Row) -> str:
    seeds = f"{point['num_seeds']} {axes.counted}{'s'[: point['num_seeds'] != 1]}"
    lowest, highest = seed_range(point)
    if lowest < highest:
        seeds += f", {formats.score(lowest)} to {formats.score(highest)}"
    if number := point.get("num_documents"):
        seeds += f"; {number:,} documents or prompts per seed"
    value = formats.score(point["y"])
    if point.get("ci_low") is not None:
        low, high = (formats.score(point[end]) for end in ("ci_low", "ci_high"))
        value += f", 95 % interval {low} to {high}"
    return f"{one.label} at {point['x']:,}: {value} ({seeds})"
