"""Data of the many-shot charts, shared by the HTML and Markdown reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dashboards.contents import Row, select
from dashboards.families import Variant

DECADE = 10
"""The axis of the number of examples is logarithmic if the largest number is more than this many
times the smallest."""


def pictured(rows: Sequence[Row]) -> Iterator[tuple[int, list[Row]]]:
    """Yield each length at which at least two numbers of examples have results, and its rows.

    The base model cannot read prompts longer than its own context. Therefore a control (a variant
    without context extension) that has no results at a length is drawn with the results at its own
    longest length, as in LCEG's Figure 2. The lengths are those of the extension methods, or those
    of the controls if the rows contain no extension method.

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
    """Return True if the largest number of examples is over `DECADE` times the smallest."""
    shots: list[int] = [row["shots"] for row in rows]
    return 0 < DECADE * min(shots) < max(shots)


def chance(rows: Sequence[Row]) -> float | None:
    """Return the accuracy of guessing, as a share.

    Return None in profile tiny, whose classes are tokens of the base model.
    """
    known: list[float] = [row["chance"] for row in rows if row["chance"] is not None]
    return known[0] if known else None
