"""Section: many-shot accuracy against number of examples, one panel per family of methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from dashboards.charts import scales
from dashboards.charts.line_panel import Axes
from dashboards.charts.lines import lines_of
from dashboards.contents import Contents, Row, select
from dashboards.families import Variant
from dashboards.figure import figure
from dashboards.sections.panels import family_panels, lines_table

DECADE = 10
"""The axis of the number of examples is logarithmic if the largest number is more than this many
times the smallest."""


def section(contents: Contents) -> Markup:
    """Return a figure for each length at which two or more numbers of examples have results."""
    return Markup("").join(_figure(contents, *found) for found in pictured(contents.shots))


def panels(contents: Contents, length: int, rows: list[Row]) -> list[str]:
    """Return an SVG panel per family, of accuracy against number of examples at one length."""
    axes = Axes(
        _title(length),
        "examples in the prompt",
        "accuracy, higher is better",
        levels={"chance": chance(rows)},
        x_scale=scales.logarithmic if spans_a_decade(rows) else scales.within,
    )
    return family_panels(contents, axes, lines_of(rows, "shots", "value"))


def _title(length: int) -> str:
    return f"Many-shot learning in {length:,} tokens"


def _figure(contents: Contents, length: int, rows: list[Row]) -> Markup:
    guess = chance(rows)
    own = sorted({row["eval_length"] for row in rows} - {length})
    in_its_own = f" in its own {own[0]:,} tokens" if own else ""
    caption = (
        "Share of questions answered correctly, mean over seeds and orders of the examples."
        " Whiskers: 95 % interval over prompts, and over seeds if there are several."
        f" Dashed, hollow: frozen weights. Grey: the base model{in_its_own}."
    )
    if guess is not None:
        caption += f" Chance: {guess:g}, one of {1 / guess:.0f} classes."
    table = lines_table(lines_of(rows, "shots", "value"), "accuracy", "examples")
    return figure(_title(length), caption, panels(contents, length, rows), table)


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
