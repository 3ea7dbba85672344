"""Heat maps as SVG: scores of methods by length, or needles found by length and depth.

The colours are eleven steps of a scale whose lightness is monotonic, so that it is readable with
any kind of colour vision. `figures.css` defines one scale for light and one for dark pages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dashboards.charts.marks import mark_data, opening, row_data, text, value_data
from dashboards.families import Family, Variant

STEPS = 10
LETTER, FIELD, HEIGHT, HEAD = 7.2, 48.0, 21.0, 22.0
GAP, BREAK = 12.0, 5.0
LETTER_OF_HEAD = 8.2
WON = 58.0
TOP = 40.0
GRID_WIDTH, GRID_LEFT, GRID_TOP, GRID_HEIGHT, GRID_BOTTOM = 172.0, 34.0, 22.0, 11.0, 20.0


@dataclass(frozen=True)
class Field:
    """One field of the heat map: the score of a method at a length, and how to draw it."""

    text: str
    tooltip: str
    value: float | None = None
    level: float | None = None
    """Position on the colour scale, from 0 (worst) to 1 (best); None if there is no score."""
    is_best: bool = False


@dataclass(frozen=True)
class HeatMap:
    """Everything that `heat_map_svg` draws."""

    title: str
    blocks: Mapping[str, Sequence[int]]
    """Adjacent columns: the lengths in tokens of each benchmark."""
    families: Sequence[Family]
    fields: Mapping[tuple[Variant, str, int], Field]
    won: Mapping[Variant, float]
    """Share (0 to 1) of comparisons that each method wins, for an extra column; empty for none."""
    trained: int | None
    """Trained context in tokens: a vertical line precedes longer lengths. None: no line."""

    @property
    def left(self) -> float:
        """X in pixels of the first column's left edge; the names of the rows are left of it."""
        names = [one.label for family in self.families for one in family.variants]
        return max(110.0, max(map(len, names), default=0) * LETTER + 12)

    @property
    def width(self) -> float:
        _, _, right = _columns(self)
        return right + (GAP + WON if self.won else 0)


def heat_map_svg(shown: HeatMap) -> str:
    places, lines, _ = _columns(shown)
    right = shown.width
    parts = []
    for block, lengths in shown.blocks.items():
        parts.append(text(block, places[block, lengths[0]] + 2, 14, "head"))
        for length in lengths:
            at = places[block, length] + FIELD / 2
            parts.append(text(f"{length:,}", at, TOP - 8, "tick middle"))
    if shown.won:
        parts.append(text("won", right - WON / 2, TOP - 8, "tick middle"))
    y = TOP
    for family in shown.families:
        parts.append(text(family.title, 0, y + 15, "family"))
        y += HEAD
        for one in family.variants:
            parts += _row(shown, one, places, y)
            y += HEIGHT
        parts += [
            f'<path class="limit" d="M{x:g} {y:g}v-{HEIGHT * len(family.variants):g}"/>'
            for x in lines
        ]
        y += 4
    return "\n".join([opening(shown.title, right, y, "heat"), *parts, "</svg>"])


def ramp_html(worst: str, best: str) -> Markup:
    steps = Markup("").join(Markup('<i class="h{}"></i>').format(step) for step in range(STEPS + 1))
    ramp = Markup('<span class="ramp">{} <span aria-hidden="true">{}</span> {}</span>')
    return ramp.format(worst, steps, best)


def _columns(shown: HeatMap) -> tuple[dict[tuple[str, int], float], list[float], float]:
    """Return the left edges of the columns, the lines at the trained context, and the end."""
    places, lines, x = {}, [], shown.left
    for block, lengths in shown.blocks.items():
        for number, length in enumerate(lengths):
            before = lengths[number - 1] if number else length
            if shown.trained is not None and before <= shown.trained < length:
                lines.append(x + BREAK / 2)
                x += BREAK
            places[block, length] = x
            x += FIELD
        # Leave room for a benchmark name that is wider than its columns.
        x = max(x, places[block, lengths[0]] + len(block) * LETTER_OF_HEAD)
        x += GAP
    return places, lines, x - GAP


def _row(
    shown: HeatMap, one: Variant, places: Mapping[tuple[str, int], float], y: float
) -> list[str]:
    left, right = shown.left, shown.width
    whose = row_data(one)
    parts = [
        f'<g class="row" {whose}>',
        f'<rect class="lane" x="0" y="{y:g}" width="{right:g}" height="{HEIGHT:g}"/>',
        text(one.label, left - 8, y + 15, "name end"),
    ]
    for (block, length), x in places.items():
        field = shown.fields.get((one, block, length))
        if field is None:
            continue
        place = f'x="{x + 0.5:g}" y="{y + 0.5:g}" width="{FIELD - 1:g}" height="{HEIGHT - 1:g}"'
        step = "absent" if field.level is None else f"h{round(field.level * STEPS)}"
        best = " best" if field.is_best else ""
        data = mark_data(one, field.tooltip, block=block, x=length, value=field.value)
        parts.append(
            f'<g class="field {step}{best}" {data}>'
            f'<rect rx="2" {place}/>{text(field.text, x + FIELD / 2, y + 15, "middle")}</g>'
        )
    if one in shown.won:
        share, x = shown.won[one], right - WON
        parts.append(
            f'<g class="won" {whose} {value_data(won=share)}>'
            f'<rect class="track" x="{x:g}" y="{y + 4:g}" width="{WON:g}" height="13" rx="2"/>'
            f'<rect class="bar" x="{x:g}" y="{y + 4:g}" width="{WON * share:.4g}" height="13"'
            f' rx="2"/>{text(f"{share:.0%}", x + WON / 2, y + 15, "middle")}</g>'
        )
    return [*parts, "</g>"]


def depth_grid_svg(
    one: Variant,
    lengths: Sequence[int],
    depths: Sequence[float],
    values: Mapping[tuple[int, float], float],
) -> str:
    """Return a heat map of one method: share of needles found by length (across) and depth in %."""
    wide = (GRID_WIDTH - GRID_LEFT) / len(lengths)
    base = GRID_TOP + GRID_HEIGHT * len(depths)
    parts = [
        opening(f"needles: {one.label}", GRID_WIDTH, base + GRID_BOTTOM, "depth-grid"),
        f"<g {row_data(one)}>",
        text(one.label, 0, 13, "panel-title small", room=0.86 * GRID_WIDTH),
    ]
    for number, length in enumerate(lengths):
        for row, depth in enumerate(depths):
            value = values.get((length, depth))
            step = "absent" if value is None else f"h{round(value * STEPS)}"
            found = "not evaluated" if value is None else f"{value:.0%} found"
            sentence = f"{one.label}, {length:,} tokens, depth {depth:g} %: {found}"
            data = mark_data(one, sentence, x=length, depth=depth, value=value)
            parts.append(
                f'<rect class="field {step}" x="{GRID_LEFT + wide * number + 0.5:.2f}"'
                f' y="{GRID_TOP + GRID_HEIGHT * row + 0.5:g}" width="{wide - 1:.2f}"'
                f' height="{GRID_HEIGHT - 1:g}" {data}/>'
            )
    for row, name in ((0, f"{depths[0]:g}%"), (len(depths) - 1, f"{depths[-1]:g}%")):
        parts.append(text(name, GRID_LEFT - 4, GRID_TOP + GRID_HEIGHT * row + 9, "tick tiny end"))
    every = max(1, -(-len(lengths) // 4))
    for number in range(len(lengths) - 1, -1, -every):
        at = GRID_LEFT + wide * (number + 0.5)
        parts.append(text(f"{lengths[number]:,}", at, base + 13, "tick tiny middle"))
    return "\n".join([*parts, "</g>", "</svg>"])
