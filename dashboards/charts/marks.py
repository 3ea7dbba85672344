"""SVG elements that all charts use: mark shapes, texts and data attributes.

Data attributes contain each mark's method, frozen flag, position and unrounded catalog value, so
that scripts and tests can read the chart back. `data-tooltip` is the tooltip text.
"""

from __future__ import annotations

from html import escape

from markupsafe import Markup

from catalog.palette import Look
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
SPOT = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"
"""SVG path of an invisible circle, which shows the tooltip of a point without a mark."""


def row_data(method: str, frozen: bool) -> str:
    """Return the SVG attributes `data-method` and `data-frozen`, which identify the method."""
    return f'data-method="{escape(method)}" data-frozen="{str(frozen).lower()}"'


def colours(look: Look) -> str:
    """Return a `style` attribute with the method's colours; the CSS class `look` applies them."""
    return f'style="--light: {look.light}; --dark: {look.dark}"'


def key_html(label: str, method: str, frozen: bool, look: Look) -> Markup:
    """Return an entry of an HTML legend: the method's mark and label."""
    return Markup(
        f'<span class="key look {weights_label(frozen)}" {colours(look)}'
        f' {row_data(method, frozen)}><svg width="12" height="12" viewBox="-6 -6 12 12"'
        f' aria-hidden="true"><path class="mark" d="{SHAPES[look.shape]}"/></svg>'
        f"{escape(label)}</span>"
    )


def value_data(**facts: float | str | None) -> str:
    """Return an SVG attribute `data-NAME` for each fact that is not None; numbers are unrounded."""
    return " ".join(
        f'data-{name.replace("_", "-")}="{escape(fact) if isinstance(fact, str) else repr(fact)}"'
        for name, fact in facts.items()
        if fact is not None
    )


def tooltip(sentence: str) -> str:
    """Return the SVG attribute `data-tooltip` with this sentence."""
    return f'data-tooltip="{escape(sentence)}"'


def text(words: str, x: float, y: float, kind: str = "", room: float | None = None) -> str:
    """Return a `<text>` element.

    Args:
      words: the text; it is escaped here.
      x, y: position in pixels.
      kind: CSS classes from `figures.css`, separated by spaces.
      room: width in pixels into which wider text is squeezed; None for no limit. The text's width
        is estimated as `LETTER` pixels per letter, which is right for small text only.
    """
    wide = room is not None and len(words) * LETTER > room
    squeezed = f' textLength="{room:g}" lengthAdjust="spacingAndGlyphs"' if wide else ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{squeezed}>{escape(words)}</text>'


def opening(title: str, width: float, height: float, kind: str, facts: str = "") -> str:
    """Return the opening `<svg>` tag. The page's SVG button names the saved file after `title`.

    Args:
      title: name of the chart.
      width, height: size in pixels.
      kind: CSS class.
      facts: data attributes from `value_data`.
    """
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
        f' height="{height:g}" style="--width: {width:g}px" role="img" aria-label="{escape(title)}"'
        f' data-chart="{escape(title)}"{facts and f" {facts}"}>'
    )
