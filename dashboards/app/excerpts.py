"""Shorten long texts to their start, the marked spans, and their end, as escaped HTML.

The text is escaped; the only HTML elements are `mark` around spans and `i` for omissions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

WHOLE = 6000
"""Texts up to this many characters are shown whole."""
BEGINNING, END, AROUND = 1500, 1200, 500
MOST_PLACES = 8
"""Number of marked spans that a shortened text always shows; later ones may be omitted."""
_CONTROL_SYMBOLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
"""Code of a visible Unicode symbol for each control character."""

Span = tuple[int, int]


def shown(length: int, places: Sequence[Span]) -> list[Span]:
    """Return the (start, end) spans of a text to show: all of it, or start, marks and end.

    The spans are sorted and disjoint.

    Args:
      length: length of the text in characters.
      places: half-open spans (start, end) to keep visible, ascending.
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
    """Return the text as HTML: spans in `mark` elements, omitted parts replaced by their size."""
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
