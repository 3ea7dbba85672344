"""Sections with line charts, one panel per family: by length, by position, by examples."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from markupsafe import Markup

from dashboards.charts import scales
from dashboards.charts.line_panel import Axes, Line, line_panel_svg, lines_of, whisker
from dashboards.contents import Contents, Row, grouped, select
from dashboards.families import (
    NO_EXTENSION,
    Family,
    Variant,
    comparable,
    duplicates,
    families,
    method_looks,
    ordered,
    panels,
)
from dashboards.figure import Cell, Table, Value, figure, score_cell
from lce_core import formats

MOST_TASKS = 3
"""A benchmark with more tasks has one figure, of the mean over tasks."""
DECADE = 10
"""The axis of the number of examples is logarithmic above this ratio."""

Lines = Mapping[Variant, Line]


def family_panels(contents: Contents, axes: Axes, lines: Lines) -> list[str]:
    """Return an SVG panel per family, with the controls in grey behind its lines.

    Without a line of a family, the only panel has the controls. The lines decide the ranges of the
    axes.
    """
    drawn = {one: line for one, line in lines.items() if line.ends}
    if not drawn:
        return []
    behind = [drawn[one] for one in ordered(contents) if one.is_control and one in drawn]
    parts = panels(families(contents), list(drawn))
    longest = max((len(part.variants) for part in parts), default=0) + len(behind)
    looks, every = method_looks(contents.overview, contents.families), [*drawn.values()]
    panel = partial(line_panel_svg, every=every, legend_lines=-(-longest // 2))
    return [
        panel(axes, part.title, [drawn[one] for one in part.variants], behind, looks)
        for part in parts or [Family("control", NO_EXTENSION, ())]
    ]


def line_figure(
    contents: Contents, axes: Axes, lines: Lines, caption: str, y_name: str, x_name: str
) -> Markup:
    pictures = family_panels(contents, axes, lines)
    if not pictures:
        return Markup()
    return figure(axes.title, caption, pictures, _table(lines, y_name, x_name))


def _table(lines: Lines, y_name: str, x_name: str) -> Table:
    drawn = {one: line.points for one, line in lines.items() if line.points}
    xs = sorted({point["x"] for points in drawn.values() for point in points})
    rows = []
    for one, points in drawn.items():
        found = {point["x"]: score_cell(point["y"], *whisker(point)) for point in points}
        rows.append((one, *map(found.get, xs)))
    return Table((f"method ({y_name} by {x_name})", *(f"{x:,}" for x in xs)), rows)


def against_length(contents: Contents) -> Markup:
    return Markup("").join(
        _of_lengths(contents, title, counted, rows)
        for title, counted, rows in _asked(contents)
        if len({row["eval_length"] for row in rows}) > 1
    )


def _asked(contents: Contents) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield (title, counted, rows) of each figure; `counted` as in `Axes`."""
    for benchmark, rows in grouped(contents.scores, "benchmark").items():
        means = select(comparable(contents.benchmarks, contents.scores), benchmark=benchmark)
        tasks = grouped(rows, "task")
        # Draw a mean only if its tasks are equal at all lengths: otherwise a change of tasks would
        # look like an effect of length.
        if len(tasks) > MOST_TASKS and len({row["task_set"] for row in means}) == 1:
            metric = next((row["metric"] for row in rows if row["metric"] is not None), None)
            yield (
                f"{benchmark}: mean of {len(tasks)} tasks".replace("_", " "),
                "cell",
                [{**row, "metric": metric, "num_seeds": row["num_done"]} for row in means],
            )
            continue
        for task, of_task in tasks.items():
            yield f"{benchmark}: {task}".replace("_", " "), "seed", of_task


def _of_lengths(contents: Contents, title: str, counted: str, rows: list[Row]) -> Markup:
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
        _contexts(contents),
        log_y=unit == "perplexity",
        counted=counted,
    )
    own = counted == "seed" and all(row["num_planned"] == 1 for row in rows)
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
    lines = lines_of(rows, "eval_length", "value")
    return line_figure(contents, axes, lines, caption, known["metric"], "length")


def _contexts(contents: Contents) -> dict[str, int | None]:
    study = contents.studies[0]
    return {"trained": study["trained_context"], "target": study["target_context"]}


def by_position(contents: Contents) -> Markup:
    figures = Markup()
    columns = ("benchmark", "task", "eval_length")
    differences = grouped(contents.nll_differences, *columns)
    for place, rows in grouped(contents.curves, *columns).items():
        caption = (
            f"Negative log-likelihood in contexts of {place[2]:,} tokens, averaged over bins of"
            f" {rows[0]['width']:,} positions and over seeds. Methods with a missing seed are"
            " left out. A line that rises beyond the trained context shows that the method"
            " fails to extend it."
        )
        curves = loss_curves(contents, rows)
        figures += line_figure(contents, *curves, caption, "nats", "position")
        figures += _against_base(contents, differences.get(place, []))
    return figures


def loss_curves(contents: Contents, rows: Sequence[Row]) -> tuple[Axes, Lines]:
    axes = Axes(
        f"Loss by position: {_text(rows[0])}",
        "position in the context (tokens)",
        "nats per token, lower is better",
        _contexts(contents),
        x_scale=scales.within,
        marks=False,
    )
    return axes, lines_of(rows, "position", "nll")


def _text(row: Row) -> str:
    return f"{row['task'].replace('_', ' ')}, {row['eval_length']:,} tokens"


def _against_base(contents: Contents, rows: Sequence[Row]) -> Markup:
    found = grouped(rows, Variant.of)
    if not found:
        return Markup()
    columns = list(zip(*found.values(), strict=True))
    best = [
        min((one["difference"] for one in bands if one["difference"] is not None), default=None)
        for bands in columns
    ]
    table = Table(
        ("method", *(Cell(band_label(bands[0]), {"class": "number"}) for bands in columns)),
        [(one, *map(_gain, found[one], best)) for one in ordered(contents) if one in found],
        duplicates(contents),
        "gains",
    )
    title = f"{_text(rows[0])} against the base model"
    return table.folded(
        title,
        title,
        " on the same tokens, by position: nats per token, lower is better",
        note="Brackets contain 95 % intervals by bootstrap over bins of positions of the evaluated"
        " text. The intervals do not cover other texts.",
    )


def _gain(band: Row, best: float | None) -> Value:
    value = band["difference"]
    if value is None:
        return None
    text = difference_text(band)
    shown = Markup("<b>{}</b>").format(text) if value == best else text
    return Cell(shown, {"class": "number", "data-value": repr(value), "data-csv": text})


def band_label(band: Row) -> str:
    end = f"to {band['band_end']:,}"
    return f"{band['band_start']:,} {end}" if band["band_start"] else end


def difference_text(band: Row) -> str:
    if band["difference"] is None:
        return ""
    return formats.difference(band["difference"], band["ci_low"], band["ci_high"])


def by_shots(contents: Contents) -> Markup:
    return Markup("").join(_of_shots(contents, *found) for found in pictured(contents.shots))


def _of_shots(contents: Contents, length: int, rows: list[Row]) -> Markup:
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
    return line_figure(contents, *shot_curves(length, rows), caption, "accuracy", "examples")


def shot_curves(length: int, rows: Sequence[Row]) -> tuple[Axes, Lines]:
    axes = Axes(
        f"Many-shot learning in {length:,} tokens",
        "examples in the prompt",
        "accuracy, higher is better",
        levels={"chance": chance(rows)},
        x_scale=scales.logarithmic if spans_a_decade(rows) else scales.within,
    )
    return axes, lines_of(rows, "shots", "value")


def pictured(rows: Sequence[Row]) -> Iterator[tuple[int, list[Row]]]:
    """Yield each length at which at least two numbers of examples have results, and its rows.

    The base model cannot read prompts longer than its own context. Therefore a control that has no
    results at a length is drawn with those at its own longest length, as in LCEG's Figure 2.
    """
    found = grouped(rows, Variant.of)
    extended = {row["eval_length"] for row in rows if not Variant.of(row).is_control}
    for length in sorted(extended or {row["eval_length"] for row in rows}):
        shown: list[Row] = []
        for one, mine in found.items():
            there = select(mine, eval_length=length)
            if one.is_control and not there:
                there = select(mine, eval_length=max(row["eval_length"] for row in mine))
            shown += there
        if len({row["shots"] for row in shown if row["value_of_done"] is not None}) > 1:
            yield length, shown


def spans_a_decade(rows: Sequence[Row]) -> bool:
    shots: list[int] = [row["shots"] for row in rows]
    return 0 < DECADE * min(shots) < max(shots)


def chance(rows: Sequence[Row]) -> float | None:
    """Return the accuracy of guessing; None in profile tiny, whose classes are tokens."""
    known: list[float] = [row["chance"] for row in rows if row["chance"] is not None]
    return known[0] if known else None
