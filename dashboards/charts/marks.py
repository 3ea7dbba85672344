"""What all charts share: shapes of marks, and the attributes by which a mark can be read back.

Every mark carries what it shows in data attributes, as the catalog gave it, so that a script or a
test can read the chart: method, frozen, value, and where it stands. `data-told` is the sentence
that a pointer shows.
"""

from __future__ import annotations

from html import escape

NUM_COLOURS = 6
LETTER = 6.4
"""Width of a letter of 11 pixels in the widest fonts that a page may get."""
SHAPES = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "M-3.2-3.2h6.4v6.4h-6.4z",
    "M0-4.2L4 3.1h-8z",
    "M0-4.6L4.6 0L0 4.6L-4.6 0z",
    "M0 4.2L4-3.1h-8z",
    "M-4-1.4h2.6v-2.6h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6z",
)
SPOT = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"
"""Where a pointer finds the value of a point without a mark."""


def row_data(method: str, frozen: bool) -> str:
    """Attributes that say whose mark it is."""
    return f'data-method="{escape(method)}" data-frozen="{str(frozen).lower()}"'


def value_data(**facts: float | str | None) -> str:
    """Attributes of what is shown; numbers unrounded, what is None is left out."""
    return " ".join(
        f'data-{name.replace("_", "-")}="{escape(fact) if isinstance(fact, str) else repr(fact)}"'
        for name, fact in facts.items()
        if fact is not None
    )


def told(sentence: str) -> str:
    """The sentence that a pointer shows."""
    return f'data-told="{escape(sentence)}"'


def text(words: str, x: float, y: float, kind: str = "", room: float | None = None) -> str:
    """A piece of text; `kind` names classes of `figures.css`, `room` is the widest it may get.

    For small text: a letter is taken to be `LETTER` wide.
    """
    wide = room is not None and len(words) * LETTER > room
    squeezed = f' textLength="{room:g}" lengthAdjust="spacingAndGlyphs"' if wide else ""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{squeezed}>{escape(words)}</text>'


def opening(title: str, width: float, height: float, kind: str) -> str:
    """The `<svg>` tag, with the name that its file gets."""
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
        f' height="{height:g}" style="--width: {width:g}px" role="img" aria-label="{escape(title)}"'
        f' data-chart="{escape(title)}">'
    )
