"""Data of the many-shot charts, shared by the HTML and Markdown reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dashboards.contents import Row, select
from dashboards.families import Variant

DECADE = 10
"""The axis is logarithmic if the largest number of examples is more than this many times the
smallest."""


def pictured(rows: Sequence[Row]) -> Iterator[tuple[int, list[Row]]]:
    """Yield (length, rows to draw) for lengths with at least two numbers of examples.

    A control (no context extension) without results at a length is represented by its results at
    its own longest length, as in LCEG's Figure 2, because the base model cannot read more than its
    own context. If the rows contain no extension method, the lengths are the controls'.

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
    """Return True if the numbers of examples span more than a factor of `DECADE`."""
    shots: list[int] = [row["shots"] for row in rows]
    return 0 < DECADE * min(shots) < max(shots)


def chance(rows: Sequence[Row]) -> float | None:
    """Return the accuracy of guessing; None if the classes are the base model's own key tokens."""
    known: list[float] = [row["chance"] for row in rows if row["chance"] is not None]
    return known[0] if known else None
