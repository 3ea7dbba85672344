"""HTML figures of the report: SVG pictures, a table of their values, and download buttons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from lce_core import formats

Value = str | int | float | bool | None


class Best(float):
    """A number that a table shows in bold."""


@dataclass(frozen=True)
class Table:
    """The unrounded values of a figure, as column names and rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]

    def html(self) -> str:
        """Return an HTML table with rounded numbers; each `data-value` has the unrounded number."""
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
        return (
            '<div class="scroll" tabindex="0" role="group" aria-label="table"><table>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
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
    if isinstance(value, float):
        number = formats.score(value)
        number = f"<b>{number}</b>" if isinstance(value, Best) else number
        return f'<td class="number" data-value="{float(value)!r}">{number}</td>'
    return f"<td>{escape(value)}</td>"
