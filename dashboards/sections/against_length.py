"""Section: line charts of score against length, one panel per family of methods."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from dashboards.charts.line_panel import Axes
from dashboards.charts.lines import lines_of
from dashboards.contents import Contents, Row, select
from dashboards.figure import figure
from dashboards.scores import comparable
from dashboards.sections.panels import family_panels, lines_table

MOST_TASKS = 3
"""A benchmark with more tasks has one figure, of the mean over tasks; others one per task."""


def section(contents: Contents) -> Markup:
    """Return a figure for each task or benchmark with results at two or more lengths."""
    return Markup("").join(
        _figure(contents, title, counted, rows)
        for title, counted, rows in _asked(contents)
        if len({row["eval_length"] for row in rows}) > 1
    )


def _asked(contents: Contents) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield (title, counted, rows) of each figure.

    `counted` names what the values are means over: "cell" for means over tasks and seeds, "seed"
    for single tasks.
    """
    for benchmark in dict.fromkeys(row["benchmark"] for row in contents.scores):
        rows = select(contents.scores, benchmark=benchmark)
        means = select(comparable(contents.benchmarks, contents.scores), benchmark=benchmark)
        tasks = list(dict.fromkeys(row["task"] for row in rows))
        # Draw a mean only if its tasks are equal at all lengths: otherwise a change of tasks would
        # look like an effect of length.
        if len(tasks) > MOST_TASKS and len({row["task_set"] for row in means}) == 1:
            known = [row for row in rows if row["metric"] is not None]
            metric = known[0]["metric"] if known else None
            yield (
                f"{benchmark}: mean of {len(tasks)} tasks".replace("_", " "),
                "cell",
                [{**row, "metric": metric, "num_seeds": row["num_done"]} for row in means],
            )
            continue
        for task in tasks:
            title = f"{benchmark}: {task}".replace("_", " ")
            yield title, "seed", select(rows, task=task)


def _figure(contents: Contents, title: str, counted: str, rows: list[Row]) -> Markup:
    study = contents.studies[0]
    known = next((row for row in rows if row["value_of_done"] is not None), None)
    if known is None:
        return Markup()
    better = "higher" if known["higher_is_better"] else "lower"
    unit = known["unit"] or ""
    measure = known["metric"] if unit == known["metric"] else f"{known['metric']} ({unit})"
    axes = Axes(
        title,
        "length (tokens)",
        f"{measure}, {better} is better",
        {"trained": study["trained_context"], "target": study["target_context"]},
        log_y=unit == "perplexity",
        counted=counted,
    )
    own = counted == "seed" and all(row["num_planned"] == 1 for row in rows)
    lines = lines_of(rows, "eval_length", "value")
    pictures = family_panels(contents, axes, lines)
    over = "Mean over seeds; whiskers go from the lowest to the highest seed."
    if any(row.get("ci_low") is not None for row in rows):
        over = (
            "Mean over seeds; whiskers: 95 % interval for other seeds and prompts, or the range of"
            " the seeds where no interval is known."
        )
    if own:
        over = "One seed; whiskers: 95 % interval over prompts or documents, if known."
    if counted == "cell":
        over = "Mean over tasks and seeds; the tables below have each task."
    caption = f"{over} Dashed, hollow: frozen weights. Grey: the base model."
    return figure(title, caption, pictures, lines_table(lines, known["metric"], "length"))
