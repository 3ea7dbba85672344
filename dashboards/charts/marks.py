"""Shared SVG elements of all charts: mark shapes and data attributes.

Data attributes hold each mark's method, frozen flag, position and unrounded catalog value, so that
scripts and tests can read the chart back. `data-tooltip` is the tooltip text.
"""

from __future__ import annotations

from html import escape

NUM_COLOURS = 6
LETTER = 6.4
"""Width of an 11-pixel letter in the widest font that a page may use."""
SHAPES = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "M-3.2-3.2h6.4v6.4h-6.4z",
    "M0-4.2L4 3.1h-8z",
    "M0-4.6L4.6 0L0 4.6L-4.6 0z",
    "M0 4.2L4-3.1h-8z",
    "M-4-1.4h2.6v-2.6h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6z",
)
SPOT = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"
"""Invisible circle that catches the pointer at a point without a mark."""


def row_data(method: str, frozen: bool) -> str:
    """Return the SVG attributes `data-method` and `data-frozen`, which identify the method."""
    return f'data-method="{escape(method)}" data-frozen="{str(frozen).lower()}"'


def value_data(**facts: float | str | None) -> str:
    """Return SVG attributes `data-NAME` with unrounded numbers or text; None is omitted."""
    return " ".join(
        f'data-{name.replace("_", "-")}="{escape(fact) if isinstance(fact, str) else repr(fact)}"'
        for name, fact in facts.items()
        if fact is not None
    )


def tooltip(sentence: str) -> str:
    """Return the SVG attribute with the text of the tooltip."""
    return f'data-tooltip="{escape(sentence)}"'


def text(words: str, x: float, y: float, kind: str = "", room: float | None = None) -> str:
    """Return a `<text>` element.

    `kind` is a list of classes in `figures.css`. Text wider than `room` pixels is squeezed to fit;
    the width is estimated as `LETTER` pixels per letter, which holds for small text only.
    """
    wide = room is not None and len(words) * LETTER > room
    squeezed = f' textLength="{room:g}" lengthAdjust="spacingAndGlyphs"' if wide else ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{squeezed}>{escape(words)}</text>'


def opening(title: str, width: float, height: float, kind: str) -> str:
    """Return the opening `<svg>` tag; `title` is also the name of the saved file."""
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
        f' height="{height:g}" style="--width: {width:g}px" role="img" aria-label="{escape(title)}"'
        f' data-chart="{escape(title)}">'
    )
