"""Section: many-shot accuracy against number of examples, one panel per family of methods."""

from __future__ import annotations

from dashboards.charts import scales
from dashboards.charts.line_panel import Axes
from dashboards.contents import Contents, Row
from dashboards.figure import figure
from dashboards.many_shot import chance, pictured, spans_a_decade
from dashboards.sections.panels import family_panels, lines_of, lines_table


def section(contents: Contents) -> str:
    """Return a figure for each length at which two or more numbers of examples have results.

    Args:
      contents: rows of one base model.
    """
    return "".join(_figure(contents, *found) for found in pictured(contents.shots))


def panels(contents: Contents, length: int, rows: list[Row]) -> list[str]:
    """Return an SVG panel per family, of accuracy against number of examples at one length.

    Args:
      contents: rows of one base model.
      length: evaluated length in tokens.
      rows: rows of the query `shots`, from `many_shot.pictured`.
    """
    axes = Axes(
        _title(length),
        "examples in the prompt",
        "accuracy, higher is better",
        {},
        (),
        (),
        levels={"chance": chance(rows)},
        x_scale=scales.logarithmic if spans_a_decade(rows) else scales.within,
    )
    return family_panels(contents, axes, lines_of(rows, "shots", "value"))


def _title(length: int) -> str:
    return f"Many-shot learning in {length:,} tokens"


def _figure(contents: Contents, length: int, rows: list[Row]) -> str:
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
