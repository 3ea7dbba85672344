"""A figure of the report: pictures, what they show, the same as a table, and both as files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from catalog.formatting import number_text

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """The numbers of a figure, one row each; values unrounded."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]

    def html(self) -> str:
        """Rounded for people; `data-value` has the number as it is."""
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
        return (
            '<div class="scroll" tabindex="0" role="group" aria-label="table"><table>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )


def figure(
    title: str, says: str, pictures: Iterable[str], table: Table, kind: str = "panels"
) -> str:
    """The figure as HTML.

    Args:
      title: Its heading; files are named after it.
      says: What to see in it, as HTML.
      pictures: SVG elements.
      table: What they show.
      kind: How the pictures stand: a class of `report.css`.
    """
    # What may be wider than its frame is scrolled by keyboard too.
    focus = ' tabindex="0" role="group" aria-label="picture"' if kind == "wide" else ""
    shown = "".join(f'<div class="panel"{focus}>{picture}</div>' for picture in pictures)
    return (
        f'<figure data-figure="{escape(title)}"><figcaption><h3>{escape(title)}</h3>'
        f'<p>{says}</p></figcaption><div class="{kind}">{shown}</div>'
        f"<details><summary>Table</summary>{table.html()}</details>"
        '<div class="tools" hidden><button type="button" data-save="csv">CSV</button>'
        '<button type="button" data-save="svg">SVG</button></div></figure>'
    )


def _cell(value: Value) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, int):
        return f'<td class="number" data-value="{value}">{value:,}</td>'
    if isinstance(value, float):
        return f'<td class="number" data-value="{value!r}">{number_text(value)}</td>'
    return f"<td>{escape(value)}</td>"
