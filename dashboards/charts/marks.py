"""SVG elements that all charts use: mark shapes, texts, axes and data attributes.

Data attributes contain each mark's method, frozen flag, position and unrounded catalog value, so
that scripts and tests can read the chart back. `data-tooltip` is the tooltip text.
"""

import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from markupsafe import Markup

from catalog.palette import Look
from dashboards.charts.scales import WithTicks
from dashboards.families import Variant
from lce_core import formats
from lce_core.study.variants import weights_label

LETTER = 6.4
"""Estimated width in pixels of a letter of an 11-pixel font, the widest of the page's fonts."""
SHAPES = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "M-3.2-3.2h6.4v6.4h-6.4z",
    "M0-4.2L4 3.1h-8z",
    "M0-4.6L4.6 0L0 4.6L-4.6 0z",
    "M0 4.2L4-3.1h-8z",
    "M-4-1.4h2.6v-2.6h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6z",
)
GAP = 24.0
_STYLE = Path(__file__).parents[1] / "page" / "figures.css"
_SIZE = re.compile(r'^<svg [^>]*? width="([\d.]+)" height="([\d.]+)"')


def row_data(one: Variant) -> str:
    return value_data(method=one.method, frozen=str(one.frozen).lower())


def colours(look: Look) -> str:
    """Return a `style` attribute with the method's colours; the CSS class `look` applies them."""
    return f'style="--light: {look.light}; --dark: {look.dark}"'


def key_html(one: Variant, look: Look) -> Markup:
    return Markup(
        f'<span class="key look {weights_label(one.frozen)}" {colours(look)}'
        f' {row_data(one)}><svg width="12" height="12" viewBox="-6 -6 12 12"'
        f' aria-hidden="true"><path class="mark" d="{SHAPES[look.shape]}"/></svg>'
        f"{escape(one.label)}</span>"
    )


def dot(
    one: Variant, look: Look, at: tuple[float, float], sentence: str, **facts: float | str | None
) -> str:
    return (
        f'<path class="mark dot look {weights_label(one.frozen)}" {colours(look)}'
        f' d="{SHAPES[look.shape]}" transform="translate({at[0]:g} {at[1]:g})"'
        f" {mark_data(one, sentence, **facts)}/>"
    )


def ticked(across: WithTicks, up: WithTicks, left: float, right: float, base: float) -> list[str]:
    (x, x_ticks), (y, y_ticks) = across, up
    parts: list[str] = []
    for tick in y_ticks:
        at = y(tick)
        parts.append(f'<path class="grid" d="M{left:g} {at:g}H{right:g}"/>')
        parts.append(text(formats.tick(tick), left - 6, at + 4, "tick end"))
    parts.append(f'<path class="axis" d="M{left:g} {base:g}H{right:g}"/>')
    for tick in x_ticks:
        at = x(tick)
        parts.append(f'<path class="axis" d="M{at:g} {base:g}v4"/>')
        parts.append(text(formats.tick(tick), at, base + 16, "tick middle"))
    return parts


def value_data(**facts: float | str | None) -> str:
    """Return an SVG attribute `data-NAME` for each fact that is not None; numbers are unrounded."""
    return " ".join(
        f'data-{name.replace("_", "-")}="{escape(fact) if isinstance(fact, str) else repr(fact)}"'
        for name, fact in facts.items()
        if fact is not None
    )


def mark_data(one: Variant, tooltip: str, **facts: float | str | None) -> str:
    return f'{row_data(one)} {value_data(**facts)} data-tooltip="{escape(tooltip)}"'


def text(words: str, x: float, y: float, kind: str = "", room: float | None = None) -> str:
    """Return a `<text>` element; `room` squeezes a wider text into this width in pixels.

    The width is estimated as `LETTER` pixels per letter, which is right for small text only.
    """
    wide = room is not None and len(words) * LETTER > room
    squeezed = f' textLength="{room:g}" lengthAdjust="spacingAndGlyphs"' if wide else ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{squeezed}>{escape(words)}</text>'


def opening(title: str, width: float, height: float, kind: str, **facts: float | str | None) -> str:
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
        f' height="{height:g}" style="--width: {width:g}px" role="img" aria-label="{escape(title)}"'
        f' data-chart="{escape(title)}"{f" {value_data(**facts)}" if facts else ""}>'
    )


def picture(charts: Sequence[str]) -> str:
    sizes = [(float(found[1]), float(found[2])) for found in map(_SIZE.match, charts) if found]
    wide, high = (max(side) for side in zip(*sizes, strict=True))
    columns = math.ceil(math.sqrt(len(charts)))
    width = GAP + columns * (wide + GAP)
    height = GAP + math.ceil(len(charts) / columns) * (high + GAP)
    placed = "\n".join(
        f'<svg x="{GAP + number % columns * (wide + GAP):g}"'
        f' y="{GAP + number // columns * (high + GAP):g}"{chart.removeprefix("<svg")}'
        for number, chart in enumerate(charts)
    )
    # Always light: pages without scripts may be light while the reader's system is dark.
    style = re.sub(r"@media screen.*?\n}\n", "", _STYLE.read_text(encoding="utf-8"), flags=re.S)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' width="{width:g}" height="{height:g}">\n<style>\n{style}</style>\n'
        f'<rect width="100%" height="100%" style="fill: var(--page)"/>\n{placed}\n</svg>\n'
    )
