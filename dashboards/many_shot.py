"""Data of the many-shot charts, shared by the HTML and Markdown reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dashboards.contents import Row, select
from dashboards.families import Variant

DECADE = 10
"""Use a logarithmic axis if the largest number of examples exceeds this multiple of the smallest.
"""


def pictured(rows: Sequence[Row]) -> Iterator[tuple[int, list[Row]]]:
    """Yield each length with at least two different numbers of examples, and the rows to draw.

    A control without results at a length is drawn at its own longest length, as in LCEG's Figure 2,
    because the base model cannot read more than its own context. If the rows contain no extension
    method, the controls' own lengths are used.

    Args:
      rows: rows of the query `shots` for one base model.
    """
    variants = list(dict.fromkeys(map(Variant.of, rows)))
    extended = {row["eval_length"] for row in rows if not Variant.of(row).is_control}
    for length in sorted(extended or {row["eval_length"] for row in rows}):
        shown: list[Row] = []
        for one in variants:
            mine = select(rows, method=one.method, frozen=one.frozen)
            there = select(mine, eval_length=length)
            if one.is_control and not there:
                there = select(mine, eval_length=max(row["eval_length"] for row in mine))
            shown += there
        if len({row["shots"] for row in shown if row["value_of_done"] is not None}) > 1:
            yield length, shown


def spans_a_decade(rows: Sequence[Row]) -> bool:
    """Return True if the numbers of examples need a logarithmic axis."""
    shots: list[int] = [row["shots"] for row in rows]
    return 0 < DECADE * min(shots) < max(shots)


def chance(rows: Sequence[Row]) -> float | None:
    """Return the accuracy of guessing; None if the classes are the base model's own key tokens."""
    known: list[float] = [row["chance"] for row in rows if row["chance"] is not None]
    return known[0] if known else None
