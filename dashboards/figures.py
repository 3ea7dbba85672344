"""Charts as inline SVG: a line per row of the study, in the colours and marks of `report.css`.

Every mark carries what it shows in data attributes (method, frozen, x, value, lowest, highest, as
the catalog gave them), so that a script or a test can read the chart back. Where seeds are missing
there is no value: the line is broken, and a small cross shows the mean of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from dashboards import scales
from dashboards.lines import Line, Point

WIDTH, HEIGHT = 660, 400
LEFT, RIGHT, TOP, BOTTOM = 52, 124, 52, 46
LABEL_GAP, LETTER = 13.5, 7.0
NUM_COLOURS = 8

_SHAPES = {
    "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "square": "M-3.6-3.6h7.2v7.2h-7.2z",
    "triangle": "M0-4.6L4.4 3.4h-8.8z",
    "diamond": "M0-5L5 0L0 5L-5 0z",
    "down": "M0 4.6L4.4-3.4h-8.8z",
    "bar": "M-4.6-2h9.2v4h-9.2z",
    "cross": "M-4.4-1.5h2.9v-2.9h3v2.9h2.9v3h-2.9v2.9h-3v-2.9h-2.9z",
}
_SPOT = "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z"
"""Where a pointer finds the value of a point without a mark."""
_CROSS = {True: "M-4-4L4 4M-4 4L4-4", False: "M-1.5-1.5L1.5 1.5M-1.5 1.5L1.5-1.5"}
"""The mark of a gap: beside marks, and beside a line only."""


@dataclass(frozen=True)
class Chart:
    """What a chart shows besides its lines."""

    title: str
    x_name: str
    y_name: str
    landmarks: Mapping[str, int | None]
    """Vertical lines: name and x."""
    log_x: bool = True
    log_y: bool = False
    marks: bool = True
    """Whether each point gets a mark of its own; without, points are a line only."""


@dataclass(frozen=True)
class _Frame:
    """Where a chart's lines may go; many lines and long names make it higher and narrower."""

    right: float
    """x of the right edge."""
    base: float
    """y of the lower edge."""

    @classmethod
    def around(cls, lines: Sequence[Line]) -> _Frame:
        names = max((len(line.label) for line in lines), default=0)
        room = max(RIGHT, names * LETTER + 14)
        return cls(WIDTH - room, max(HEIGHT - BOTTOM, TOP + LABEL_GAP * len(lines)))


def chart_svg(chart: Chart, lines: Sequence[Line], styles: Mapping[str, int]) -> str:
    """The chart as an `<svg>` element.

    Args:
      chart: Titles and axes.
      lines: At least one line with at least one mark; empty ones are left out.
      styles: Number of each method, for its colour and mark; 0 is the control.
    """
    drawn = [line for line in lines if line.ends]
    xs = [float(x) for line in drawn for x, _ in line.ends]
    ys = [y for line in drawn for point in line.points for y in (point.lowest, point.highest)]
    ys += [y for line in drawn for _, y in line.ends]
    make_x = scales.lengths if chart.log_x else scales.within
    make_y = scales.logarithmic if chart.log_y and min(ys) > 0 else scales.linear
    frame = _Frame.around(drawn)
    x_scale, x_ticks = make_x(xs, LEFT + 10, frame.right - 10)
    y_scale, y_ticks = make_y(ys, frame.base, TOP)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {frame.base + BOTTOM:g}" role="img"'
        f' aria-label="{escape(chart.title)}" data-chart="{escape(chart.title)}">',
        *_x_axis(chart, frame, x_scale, x_ticks),
        *_y_axis(chart, frame, y_scale, y_ticks),
        *_landmarks(chart, frame, x_scale),
    ]
    ends = [y_scale(line.ends[-1][1]) for line in drawn]
    places = scales.spread(ends, LABEL_GAP, TOP, frame.base)
    for line, place in zip(drawn, places, strict=True):
        label = (frame.right + 2, place)
        parts += _line(chart, line, styles[line.method], x_scale, y_scale, label)
    return "\n".join([*parts, "</svg>"])


def swatch_svg(line: Line, style: int) -> str:
    """A short piece of the line, for the legend."""
    return (
        '<svg class="swatch" viewBox="0 0 34 12" aria-hidden="true">'
        f'<g class="{_class(line, style)}"><path class="stroke" d="M2 6H32"/>'
        f'<path class="mark" transform="translate(17 6)" d="{_shape(style)}"/></g></svg>'
    )


def _line(
    chart: Chart,
    line: Line,
    style: int,
    x: scales.Scale,
    y: scales.Scale,
    label: tuple[float, float],
) -> list[str]:
    row = f'data-method="{escape(line.method)}" data-frozen="{str(line.frozen).lower()}"'
    parts = [f'<g class="{_class(line, style)}" data-series="{escape(line.label)}" {row}>']
    for run in line.runs:
        if not chart.marks:
            upper = [f"{x(point.x):g} {y(point.highest):g}" for point in run]
            lower = [f"{x(point.x):g} {y(point.lowest):g}" for point in reversed(run)]
            parts.append(f'<path class="band" d="M{"L".join([*upper, *lower])}Z"/>')
        path = "L".join(f"{x(point.x):g} {y(point.value):g}" for point in run)
        parts.append(f'<path class="stroke" d="M{path}"/>')
    look = f'class="mark" d="{_shape(style)}"' if chart.marks else f'class="spot" d="{_SPOT}"'
    for point in line.points:
        px, py = x(point.x), y(point.value)
        if chart.marks and point.lowest < point.highest:
            ends = f"V{y(point.highest):g}"
            parts.append(f'<path class="range" d="M{px:g} {y(point.lowest):g}{ends}"/>')
        parts.append(
            f'<path {look} transform="translate({px:g} {py:g})" {row} data-x="{point.x}"'
            f' data-value="{point.value!r}" data-lowest="{point.lowest!r}"'
            f' data-highest="{point.highest!r}"><title>{escape(_told(line, point))}</title></path>'
        )
    parts += _gaps(line, row, _CROSS[chart.marks], x, y)
    (last, value), (edge, place) = line.ends[-1], label
    leader = f"M{x(last) + 6:g} {y(value):g}L{edge:g} {place:g}"
    parts.append(f'<path class="leader" d="{leader}"/>')
    text = f'<text class="name" x="{edge + 4:g}" y="{place + 3.5:g}">{escape(line.label)}</text>'
    return [*parts, text, "</g>"]


def _gaps(line: Line, row: str, look: str, x: scales.Scale, y: scales.Scale) -> list[str]:
    parts = []
    for gap in line.gaps:
        if gap.value_of_done is None:
            continue
        told = (
            f"{line.label} at {gap.x}: no value, {gap.num_seeds} of {gap.num_planned} seeds"
            f" (their mean {gap.value_of_done:.4g}); {gap.missing}"
        )
        place = f"translate({x(gap.x):g} {y(gap.value_of_done):g})"
        parts.append(
            f'<path class="gap" d="{look}" transform="{place}" {row} data-x="{gap.x}"'
            f' data-value-of-done="{gap.value_of_done!r}"><title>{escape(told)}</title></path>'
        )
    return parts


def _told(line: Line, point: Point) -> str:
    seeds = "1 seed" if point.num_seeds == 1 else f"{point.num_seeds} seeds"
    return (
        f"{line.label} at {point.x}: {point.value:.4g}"
        f" ({seeds}, {point.lowest:.4g} to {point.highest:.4g})"
    )


def _x_axis(chart: Chart, frame: _Frame, scale: scales.Scale, ticks: list[float]) -> list[str]:
    base = frame.base
    parts = [f'<path class="axis" d="M{LEFT} {base:g}H{frame.right:g}"/>']
    for tick in ticks:
        at = f"{scale(tick):g}"
        parts.append(f'<path class="axis" d="M{at} {base:g}v5"/>')
        parts.append(
            f'<text class="tick middle" x="{at}" y="{base + 18:g}">{scales.tick_label(tick)}</text>'
        )
    middle = (LEFT + frame.right) / 2
    name = f'<text class="title middle" x="{middle:g}" y="{base + BOTTOM - 8:g}">'
    return [*parts, f"{name}{escape(chart.x_name)}</text>"]


def _y_axis(chart: Chart, frame: _Frame, scale: scales.Scale, ticks: list[float]) -> list[str]:
    parts = [f'<text class="title" x="0" y="14">{escape(chart.y_name)}</text>']
    for tick in ticks:
        at = scale(tick)
        parts.append(f'<path class="grid" d="M{LEFT} {at:g}H{frame.right:g}"/>')
        label = scales.tick_label(tick)
        parts.append(f'<text class="tick end" x="{LEFT - 7}" y="{at + 4:g}">{label}</text>')
    return parts


def _landmarks(chart: Chart, frame: _Frame, scale: scales.Scale) -> list[str]:
    parts = []
    for name, x in chart.landmarks.items():
        if x is None or not scale.low <= x <= scale.high:
            continue
        at = scale(x)
        parts.append(f'<path class="landmark" d="M{at:g} {TOP - 8}V{frame.base:g}"/>')
        parts.append(
            f'<text class="tick middle" x="{at:g}" y="{TOP - 13}">{escape(name)} {x}</text>'
        )
    return parts


def _class(line: Line, style: int) -> str:
    colour = "control" if style == 0 else f"c{(style - 1) % NUM_COLOURS}"
    return f"series {colour} {'frozen' if line.frozen else 'tuned'}"


def _shape(style: int) -> str:
    shapes = list(_SHAPES.values())
    return shapes[style % len(shapes)]
