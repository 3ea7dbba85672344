"""Section: the trials of `tune`, and each method at the common and at its own best value."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from dashboards.charts.line_panel import Axes
from dashboards.charts.lines import lines_of
from dashboards.charts.scales import WithTicks, logarithmic, within
from dashboards.contents import Contents
from dashboards.families import Variant
from dashboards.figure import Best, Table, figure, paragraph
from dashboards.sections.panels import family_panels, lines_table

AT_EDGE = "the best value is at the edge of the grid"


def section(contents: Contents) -> Markup:
    """Return response curves, the losses of all trials and the scores at both values.

    Return "" without trials.
    """
    rows = contents.trials
    if not rows:
        return Markup()
    field = rows[0]["field"].replace("_", " ")
    lines = lines_of(rows, "value", "nll")
    axes = Axes("Response curves", field, "nats per token", x_scale=_grid)
    caption = (
        f"Validation loss of each method's trial with each {field}, on text that the study does not"
        " report."
    )
    if any(Variant.of(row).is_control for row in rows):
        caption += " Grey: the base model, fine-tuned without an extension."
    table = lines_table(lines, "nll", field)
    shown = figure(axes.title, caption, family_panels(contents, axes, lines), table)
    shown += trials(contents).saved("trials")
    if not contents.own_best:
        return shown
    about = paragraph(
        f"Each method at the common {field} and at its own best one, with its rank among these"
        " methods. Verdict: its own best value compared with the common one, over the study's"
        " seeds."
    )
    return shown + about + own_best(contents).saved("own best")


def _grid(values: Sequence[float], start: float, end: float) -> WithTicks:
    """Return an axis with a tick at each value: logarithmic unless a value is 0."""
    scale, _ = (logarithmic if min(values) > 0 else within)(values, start, end)
    return scale, sorted(set(values))


def trials(contents: Contents) -> Table:
    """Return the validation loss by method (rows) and value (columns); the best is bold."""
    rows = contents.trials
    values = sorted({row["value"] for row in rows})
    nll = {(row["method"], row["value"]): row for row in rows}
    edges = {row["method"] for row in rows if row["at_edge"]}
    return Table(
        ("method", *(f"{value:g}" for value in values), "note"),
        [
            (
                method,
                *(
                    Best(cell["nll"]) if cell["chosen"] else cell["nll"]
                    for value in values
                    for cell in [nll[method, value]]
                ),
                AT_EDGE if method in edges else "",
            )
            for method in dict.fromkeys(row["method"] for row in rows)
        ],
    )


def own_best(contents: Contents) -> Table:
    """Return the scores of each method at the common and at its own best value."""
    columns = (
        "benchmark", "eval_length", "method", "common_value", "common_score", "common_rank",
        "own_value", "own_score", "own_rank", "verdict",
    )  # fmt: skip
    return Table(
        tuple(name.replace("_", " ").replace("eval ", "") for name in columns),
        [
            tuple(f"{row[n]:g}" if n.endswith("_value") else row[n] for n in columns)
            for row in contents.own_best
        ],
    )
