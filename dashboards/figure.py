"""HTML figures of the report: SVG pictures, a table of their values, and download buttons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from dashboards.families import Variant
from lce_core import formats

Value = str | int | float | bool | Variant | None
MOST_ROWS = 40
"""Tables with more rows scroll in a box of their own."""


class Best(float):
    """A number that a table shows in bold."""


class Ranged(float):
    """A number with a range around it, such as an interval."""

    low: float
    high: float

    def __new__(cls, value: float, low: float, high: float) -> Ranged:
        """Return the number `value` with the range from `low` to `high`."""
        self = super().__new__(cls, value)
        self.low, self.high = low, high
        return self


@dataclass(frozen=True)
class Table:
    """The unrounded values of a figure, as column names and rows. The first column names rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    same: Mapping[Variant, Variant] = field(default_factory=dict)
    """Variants that repeat the computation of another one (`dashboards.families.duplicates`)."""

    def html(self) -> str:
        """Return an HTML table with rounded numbers; each `data-value` has the unrounded number."""
        head = "".join(
            f'<th scope="col"{_aligned(column)}>{escape(name)}</th>'
            for name, *column in zip(self.columns, *self.rows, strict=True)
        )
        body = "".join(
            f"<tr>{row_head(first, self.same)}{''.join(map(_cell, row))}</tr>"
            for first, *row in self.rows
        )
        return scrollable(f"<tr>{head}</tr>", body)


def scrollable(head: str, body: str, kind: str = "") -> str:
    """Return an HTML table in a box that scrolls if the table is wider than the page.

    Args:
      head: rows of the header as HTML.
      body: rows of the body as HTML.
      kind: CSS class of the table.
    """
    long = " long" if body.count("<tr") > MOST_ROWS else ""
    return (
        f'<div class="scroll{long}" tabindex="0" role="group" aria-label="table">'
        f'<table class="{kind}"><thead>{head}</thead><tbody>{body}</tbody></table></div>'
    )


def heads(*names: str) -> str:
    """Return the row of a table's header as HTML."""
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return f"<tr>{cells}</tr>"


def row_head(value: Value, same: Mapping[Variant, Variant]) -> str:
    """Return the first cell of a row. A method that repeats another one names that one.

    Args:
      value: name of the row.
      same: see `Table.same`.
    """
    if not isinstance(value, Variant):
        return _cell(value).replace("<td", '<th scope="row"', 1).replace("</td>", "</th>")
    label = escape(value.label)
    note = f' <span class="same">= {code(same[value].label)}</span>' if value in same else ""
    return f'<th scope="row" data-csv="{label}">{code(value.label)}{note}</th>'


def code(text: str) -> str:
    """Return the text in code type, as the report shows names of methods."""
    return f"<code>{escape(text)}</code>"


def names_as_code(sentence: str, variants: Iterable[Variant]) -> str:
    """Return a sentence as HTML, with the names of the variants in code type."""
    names = sorted({one.label for one in variants if not one.is_control}, key=len, reverse=True)
    if not names:
        return escape(sentence)
    name = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, names))})(?![\w-])")
    return "".join(
        code(part) if number % 2 else escape(part)
        for number, part in enumerate(name.split(sentence))
    )


def figure(
    title: str, caption: str, pictures: Iterable[str], table: Table, kind: str = "panels"
) -> str:
    """Return the figure as HTML.

    Args:
      title: Heading of the figure; downloaded files are named after it.
      caption: Caption as HTML; the caller escapes texts in it.
      pictures: SVG elements.
      table: Values that the pictures show.
      kind: Layout of the pictures: a CSS class in `report.css`.
    """
    # Make a picture that may be wider than its frame scrollable by keyboard.
    focus = ' tabindex="0" role="group" aria-label="picture"' if kind == "wide" else ""
    shown = "".join(f'<div class="panel"{focus}>{picture}</div>' for picture in pictures)
    return (
        f'<figure data-figure="{escape(title)}"><figcaption><h3>{escape(title)}</h3>'
        f'<p>{caption}</p></figcaption><div class="{kind}">{shown}</div>'
        f"<details><summary>Table</summary>{table.html()}</details>"
        '<div class="tools" hidden><button type="button" data-save="csv">CSV</button>'
        '<button type="button" data-save="svg">SVG</button></div></figure>'
    )


def table_with_csv(name: str, table: Table) -> str:
    """Return the table as HTML with a button that saves it as CSV in a file named `name`."""
    return (
        f'<div data-figure="{escape(name)}">{table.html()}<div class="tools" hidden>'
        '<button type="button" data-save="csv">CSV</button></div></div>'
    )


def _cell(value: Value) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, int):
        return f'<td class="number" data-value="{value}">{value:,}</td>'
    if isinstance(value, Variant):
        return f"<td>{code(value.label)}</td>"
    if isinstance(value, float):
        number = formats.score(value)
        number = f"<b>{number}</b>" if isinstance(value, Best) else number
        facts = f'data-value="{float(value)!r}"'
        if isinstance(value, Ranged) and value.low < value.high:
            facts += f' data-low="{value.low!r}" data-high="{value.high!r}"'
            low, high = formats.score(value.low), formats.score(value.high)
            number += f" <small>[{low}, {high}]</small>"
        return f'<td class="number" {facts}>{number}</td>'
    return f"<td>{escape(value)}</td>"


def _aligned(column: Sequence[Value]) -> str:
    numbers = [isinstance(one, int | float) and not isinstance(one, bool) for one in column]
    return ' class="number"' if any(numbers) else ""
