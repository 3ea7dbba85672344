"""Scatter plot of two scores per method as SVG; methods on the Pareto front are labelled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from catalog.palette import Look
from dashboards.charts import scales
from dashboards.charts.marks import SHAPES, colours, opening, row_data, text, tooltip, value_data
from dashboards.families import Variant
from lce_core import formats
from lce_core.study.variants import weights_label

WIDTH, HEIGHT = 340.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 14.0, 44.0, 40.0
LETTER, MARK = 6.2, 4.0
STEPS_ASIDE = (4.0, 19.0, -9.0, 34.0, -24.0, 49.0, 64.0)
"""Vertical distances in pixels at which a label is tried, in this order, to find free space."""


@dataclass(frozen=True)
class Axis:
    """One of the two scores: its name, its better direction, and the kind of its axis."""

    name: str
    higher_is_better: bool
    logarithmic: bool = False


def scatter_svg(
    title: str,
    axes: tuple[Axis, Axis],
    looks: Mapping[str, Look],
    points: Mapping[Variant, tuple[float, float]],
) -> str:
    """Return the chart as an `<svg>` element.

    Args:
      title: Name of the chart.
      axes: The x and the y axis.
      looks: Colours and mark shape by method.
      points: (x, y) of each variant to draw; at least one.
    """
    x_scale, x_ticks = _scale(axes[0], [x for x, _ in points.values()], LEFT + 8, WIDTH - RIGHT - 8)
    y_scale, y_ticks = _scale(axes[1], [y for _, y in points.values()], HEIGHT - BOTTOM - 8, TOP)
    base = HEIGHT - BOTTOM
    parts = [opening(title, WIDTH, HEIGHT, "scatter"), text(title, 0, 13, "panel-title")]
    parts.append(text(_axis_name(axes[1], y_scale), 0, 31, "tick"))
    for tick in y_ticks:
        at = y_scale(tick)
        parts.append(f'<path class="grid" d="M{LEFT:g} {at:g}H{WIDTH - RIGHT:g}"/>')
        parts.append(text(formats.tick(tick), LEFT - 6, at + 4, "tick end"))
    for tick in x_ticks:
        at = x_scale(tick)
        parts.append(f'<path class="axis" d="M{at:g} {base:g}v4"/>')
        parts.append(text(formats.tick(tick), at, base + 16, "tick middle"))
    parts.append(f'<path class="axis" d="M{LEFT:g} {base:g}H{WIDTH - RIGHT:g}"/>')
    parts.append(text(_axis_name(axes[0], x_scale), WIDTH - RIGHT, base + 34, "tick end"))
    labels = []
    for one, (x, y) in points.items():
        place = (x_scale(x), y_scale(y))
        look = looks[one.method]
        sentence = (
            f"{one.label}: {axes[0].name} {formats.score(x)}, {axes[1].name} {formats.score(y)}"
        )
        parts.append(
            f'<path class="mark dot look {weights_label(one.frozen)}" {colours(look)}'
            f' d="{SHAPES[look.shape]}" transform="translate({place[0]:g} {place[1]:g})"'
            f" {row_data(one.method, one.frozen)} {value_data(x=x, value=y)}"
            f" {tooltip(sentence)}/>"
        )
        if not _is_beaten(points[one], points.values(), axes):
            labels.append((place, one))
    marks = [(x_scale(x), y_scale(y)) for x, y in points.values()]
    return "\n".join([*parts, *_names(labels, marks), "</svg>"])


def _scale(
    axis: Axis, values: list[float], start: float, end: float
) -> tuple[scales.Scale, list[float]]:
    make = scales.logarithmic if axis.logarithmic and min(values) > 0 else scales.linear
    return make(values, start, end)


def _axis_name(axis: Axis, scale: scales.Scale) -> str:
    better = "higher" if axis.higher_is_better else "lower"
    return scales.name(f"{axis.name}, {better} is better", scale)


def _is_beaten(
    point: tuple[float, float], points: Iterable[tuple[float, float]], axes: tuple[Axis, Axis]
) -> bool:
    """Return True if another point is at least as good on both axes and better on one."""

    def signed(one: tuple[float, float]) -> tuple[float, ...]:
        return tuple(
            value if axis.higher_is_better else -value
            for value, axis in zip(one, axes, strict=True)
        )

    mine = signed(point)
    return any(
        all(a >= b for a, b in zip(signed(other), mine, strict=True)) and signed(other) != mine
        for other in points
    )


def _names(
    labels: Sequence[tuple[tuple[float, float], Variant]], marks: Sequence[tuple[float, float]]
) -> list[str]:
    """Return labels for points, each where it covers no mark or label.

    A label for which there is no free space is omitted.

    Args:
      labels: ((x, y) in pixels, variant) of each point to label.
      marks: (x, y) in pixels of all points.
    """
    parts: list[str] = []
    taken = [(y - MARK, y + MARK, x - MARK, x + MARK) for x, y in marks]
    for (x, y), one in sorted(labels, key=lambda label: label[0]):
        width = len(one.label) * LETTER
        left = x + 9 if x + 9 + width < WIDTH else x - 9 - width
        for below in STEPS_ASIDE:
            box = (y + below - 9, y + below + 3, left, left + width)
            inside = box[0] > TOP - 10 and box[1] < HEIGHT - BOTTOM
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                leader = (
                    f"M{x:g} {y:g}L{left - 2 if left > x else left + width:g} {y + below - 4:g}"
                )
                parts.append(
                    f"<g {row_data(one.method, one.frozen)}>"
                    f'<path class="leader" d="{leader}"/>'
                    f"{text(one.label, left, y + below, 'near')}</g>"
                )
                break
    return parts


def _overlap(
    one: tuple[float, float, float, float], other: tuple[float, float, float, float]
) -> bool:
    """Return True if two boxes (top, bottom, left, right) overlap."""
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]
