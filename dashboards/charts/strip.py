"""Strip chart as SVG: one lane per family, with a dot at each method's share of won comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboards.charts.marks import SHAPES, colours, opening, row_data, text, tooltip, value_data
from dashboards.families import Family, Variant
from lce_core.palette import Look
from lce_core.study.variants import weights_label

WIDTH, LEFT, RIGHT, TOP, LANE, BOTTOM = 460.0, 8.0, 10.0, 30.0, 42.0, 34.0


def strip_svg(
    title: str,
    found: Sequence[Family],
    won: Mapping[Variant, float],
    looks: Mapping[str, Look],
) -> str:
    """Return the chart as an `<svg>` element; right is better.

    Args:
      title: Name of the chart.
      found: Families, from the top lane to the bottom one. Variants that `won` lacks are omitted.
      won: Share of comparisons won by each variant, 0 to 1.
      looks: Colours and mark shape by method.
    """
    span = WIDTH - LEFT - RIGHT
    base = TOP + LANE * len(found)
    parts = [opening(title, WIDTH, base + BOTTOM, "strip"), text(title, 0, 13, "panel-title")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LEFT + share * span
        anchor = {0.0: "start", 1.0: "end"}.get(share, "middle")
        parts.append(f'<path class="grid" d="M{x:g} {TOP:g}V{base:g}"/>')
        parts.append(text(f"{share:.0%}", x, base + 14, f"tick {anchor}"))
    parts.append(text("share of comparisons won", LEFT + span / 2, base + 29, "tick middle"))
    for number, family in enumerate(found):
        y = TOP + LANE * number + LANE - 11
        members = sorted((one for one in family.variants if one in won), key=lambda one: -won[one])
        parts.append(f'<path class="axis" d="M{LEFT:g} {y:g}H{WIDTH - RIGHT:g}"/>')
        parts.append(text(family.title, LEFT, y - 14, "family"))
        if members:
            best = members[0]
            near = f"best: {best.label}, {won[best]:.0%}"
            parts.append(text(near, WIDTH - RIGHT, y - 14, "near end"))
        for one in reversed(members):
            look = looks[one.method]
            at = f"translate({LEFT + won[one] * span:.2f} {y:g})"
            sentence = f"{one.label} wins {won[one]:.0%} of its comparisons"
            parts.append(
                f'<path class="mark dot look {weights_label(one.frozen)}" {colours(look)}'
                f' d="{SHAPES[look.shape]}" transform="{at}"'
                f" {row_data(one.method, one.frozen)} {value_data(value=won[one])}"
                f" {tooltip(sentence)}/>"
            )
    return "\n".join([*parts, "</svg>"])
