"""Shorten long texts to their start, the marked spans, and their end, and return them as HTML.

The text itself is escaped. The HTML contains only the elements `mark`, around the marked spans, and
`i`, for omitted parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

WHOLE = 6000
"""A text of up to this many characters is not shortened."""
BEGINNING, END, AROUND = 1500, 1200, 500
MOST_PLACES = 8
"""A shortened text always shows this many marked spans; it may omit later ones."""
_CONTROL_SYMBOLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
"""Code point of a visible symbol for the code of each control character."""

Span = tuple[int, int]


def shown(length: int, places: Sequence[Span]) -> list[Span]:
    """Return the spans of a text that an excerpt shows: sorted, disjoint (start, end) pairs.

    A short text is shown whole. Of a long text, an excerpt shows the start, the end and the
    surroundings of the marked spans.

    Args:
      places: the marked spans as half-open (start, end) pairs, in ascending order.
    """
    if length <= WHOLE:
        return [(0, length)]
    wanted = [(0, BEGINNING), (length - END, length)]
    for first, last in places[:MOST_PLACES]:
        wanted.append((max(0, first - AROUND), min(length, last + AROUND)))
    found: list[Span] = []
    for first, last in sorted(wanted):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def as_html(text: str, places: Sequence[Span]) -> str:
    """Return an excerpt of a text as HTML, with marked spans and the sizes of omitted parts."""
    parts, at = [], 0
    for first, last in shown(len(text), places):
        if first > at:
            parts.append(f"\n<i>[{first - at:,} characters are not shown here]</i>\n")
        parts += _marked(text, first, last, places)
        at = last
    return "".join(parts)


def _marked(text: str, first: int, last: int, places: Sequence[Span]) -> Iterator[str]:
    at = first
    for begin, end in places:
        if first <= begin and end <= last:
            yield _plain(text[at:begin])
            yield f"<mark>{_plain(text[begin:end])}</mark>"
            at = end
    yield _plain(text[at:last])


def _plain(text: str) -> str:
    return escape(text.translate(_CONTROL_SYMBOLS))
