"""Small SVG for one method: share of needles found by length (across) and depth (down)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboards.charts.heat_map import STEPS
from dashboards.charts.marks import opening, row_data, text, tooltip, value_data
from dashboards.families import Variant

WIDTH, LEFT, TOP, HEIGHT, BOTTOM = 172.0, 34.0, 22.0, 11.0, 20.0


def depth_grid_svg(
    one: Variant,
    lengths: Sequence[int],
    depths: Sequence[float],
    values: Mapping[tuple[int, float], float],
) -> str:
    """Return the grid as an `<svg>` element.

    Args:
      one: The method, frozen or tuned.
      lengths: The lengths in tokens, one per column.
      depths: The depths in %, one per row; 0 is the start of the text, 100 its end.
      values: Share of needles found, 0 to 1, by (length, depth).
    """
    whose = row_data(one.method, one.frozen)
    wide = (WIDTH - LEFT) / len(lengths)
    base = TOP + HEIGHT * len(depths)
    parts = [
        opening(f"needles: {one.label}", WIDTH, base + BOTTOM, "depth-grid"),
        f"<g {whose}>",
        text(one.label, 0, 13, "panel-title small", room=0.86 * WIDTH),
    ]
    for number, length in enumerate(lengths):
        for row, depth in enumerate(depths):
            value = values.get((length, depth))
            step = "absent" if value is None else f"h{round(value * STEPS)}"
            found = "not evaluated" if value is None else f"{value:.0%} found"
            sentence = f"{one.label}, {length:,} tokens, depth {depth:g} %: {found}"
            parts.append(
                f'<rect class="field {step}" x="{LEFT + wide * number + 0.5:.2f}"'
                f' y="{TOP + HEIGHT * row + 0.5:g}" width="{wide - 1:.2f}"'
                f' height="{HEIGHT - 1:g}" {whose}'
                f" {value_data(x=length, depth=depth, value=value)} {tooltip(sentence)}/>"
            )
    for row, name in ((0, f"{depths[0]:g}%"), (len(depths) - 1, f"{depths[-1]:g}%")):
        parts.append(text(name, LEFT - 4, TOP + HEIGHT * row + 9, "tick tiny end"))
    every = max(1, -(-len(lengths) // 4))
    for number in range(len(lengths) - 1, -1, -every):
        at = LEFT + wide * (number + 0.5)
        parts.append(text(f"{lengths[number]:,}", at, base + 13, "tick tiny middle"))
    return "\n".join([*parts, "</g>", "</svg>"])
