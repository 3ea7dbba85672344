"""Scatter plot of two scores per method as SVG; methods on the Pareto front are labelled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import ge, mul

from catalog.palette import Look
from dashboards.charts import scales
from dashboards.charts.marks import dot, opening, row_data, text, ticked
from dashboards.families import Variant
from lce_core import formats

WIDTH, HEIGHT = 340.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 14.0, 44.0, 40.0
LETTER, MARK = 6.2, 4.0
STEPS_ASIDE = (4.0, 19.0, -9.0, 34.0, -24.0, 49.0, 64.0)
"""Vertical distances in pixels at which a label is tried, in this order, to find free space."""

Place = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """One of the two scores: its name, its better direction, and the kind of its axis."""

    name: str
    higher_is_better: bool
    logarithmic: bool = False

    def scale(self, values: Sequence[float], start: float, end: float) -> scales.WithTicks:
        make = scales.logarithmic if self.logarithmic and min(values) > 0 else scales.linear
        return make(values, start, end)

    def title(self, scale: scales.Scale) -> str:
        better = "higher" if self.higher_is_better else "lower"
        return scales.name(f"{self.name}, {better} is better", scale)


def scatter_svg(
    title: str, axes: tuple[Axis, Axis], looks: Mapping[str, Look], points: Mapping[Variant, Place]
) -> str:
    right, base = WIDTH - RIGHT, HEIGHT - BOTTOM
    x, x_ticks = axes[0].scale([x for x, _ in points.values()], LEFT + 8, right - 8)
    y, y_ticks = axes[1].scale([y for _, y in points.values()], base - 8, TOP)
    places = {one: (x(at[0]), y(at[1])) for one, at in points.items()}
    parts = [
        opening(title, WIDTH, HEIGHT, "scatter"),
        text(title, 0, 13, "panel-title"),
        text(axes[1].title(y), 0, 31, "tick"),
        *ticked((x, x_ticks), (y, y_ticks), LEFT, right, base),
        text(axes[0].title(x), right, base + 34, "tick end"),
    ]
    for one, values in points.items():
        shown = (f"{it.name} {formats.score(at)}" for it, at in zip(axes, values, strict=True))
        sentence = f"{one.label}: {', '.join(shown)}"
        x_value, value = values
        parts.append(dot(one, looks[one.method], places[one], sentence, x=x_value, value=value))
    # A method is beaten if another one is at least as good on both axes and better on one.
    signs = [1 if axis.higher_is_better else -1 for axis in axes]
    signed = {one: tuple(map(mul, signs, at)) for one, at in points.items()}
    best = [
        one
        for one, mine in signed.items()
        if not any(all(map(ge, other, mine)) and other != mine for other in signed.values())
    ]
    return "\n".join([*parts, *_names(best, places), "</svg>"])


def _names(labelled: Sequence[Variant], places: Mapping[Variant, Place]) -> list[str]:
    """Return labels where they cover no mark or label; omit those without free space."""
    parts: list[str] = []
    taken = [(y - MARK, y + MARK, x - MARK, x + MARK) for x, y in places.values()]
    for one in sorted(labelled, key=places.__getitem__):
        x, y = places[one]
        width = len(one.label) * LETTER
        left = x + 9 if x + 9 + width < WIDTH else x - 9 - width
        for below in STEPS_ASIDE:
            upper, lower, right = y + below - 9, y + below + 3, left + width
            is_free = upper > TOP - 10 and lower < HEIGHT - BOTTOM
            if is_free and not any(
                upper < end and start < lower and left < far and near < right
                for start, end, near, far in taken
            ):
                taken.append((upper, lower, left, right))
                leader = f"M{x:g} {y:g}L{left - 2 if left > x else right:g} {y + below - 4:g}"
                parts.append(
                    f'<g {row_data(one)}><path class="leader" d="{leader}"/>'
                    f"{text(one.label, left, y + below, 'near')}</g>"
                )
                break
    return parts
