"""What a picture of many-shot learning holds, the same in every form of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dashboards.contents import Row, select
from dashboards.families import Variant

DECADE = 10
"""Times the fewest examples beyond which their axis is logarithmic."""


def pictured(rows: Sequence[Row]) -> Iterator[tuple[int, list[Row]]]:
    """Each length whose methods were shown different numbers of examples, and what stands in it.

    A control that was not asked there stands in at its longest length, as in LCEG's Figure 2: the
    base model has no more than its own context. Controls alone are shown where there is no method.

    Args:
      rows: of the query shots, of one base model.
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
    """Whether the examples of these rows need a logarithmic axis."""
    shots: list[int] = [row["shots"] for row in rows]
    return 0 < DECADE * min(shots) < max(shots)


def chance(rows: Sequence[Row]) -> float | None:
    """Accuracy of a guess; None where the classes are the base model's own key tokens."""
    known: list[float] = [row["chance"] for row in rows if row["chance"] is not None]
    return known[0] if known else None
