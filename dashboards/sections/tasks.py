"""Section: one table per benchmark, with the scores by task and length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from dashboards.charts.marks import row_data
from dashboards.comparable import is_best
from dashboards.contents import Contents, Row, select
from dashboards.families import Variant, duplicates, ordered
from dashboards.figure import row_head, scrollable
from dashboards.marks import LEGEND, MARKS, Place, place, verdicts
from lce_core import formats

Column = tuple[str, int]
"""A column of a table: task and length in tokens."""
MOST_COLUMNS = 10
"""Maximum number of columns of a table on paper."""
_COUNTED = "n: prompts or windows of text behind the score of each seed."


def section(contents: Contents) -> str:
    """Return a collapsed table for each benchmark.

    Args:
      contents: rows of one base model.
    """
    return _tables(contents, on_paper=False)


def on_paper(contents: Contents) -> str:
    """Return the tables expanded and with at most `MOST_COLUMNS` columns, for A4 sheets.

    Args:
      contents: rows of one base model.
    """
    return _tables(contents, on_paper=True)


def _tables(contents: Contents, *, on_paper: bool) -> str:
    tables, sure = [], verdicts(contents)
    for benchmark in dict.fromkeys(row["benchmark"] for row in contents.scores):
        rows = select(contents.scores, benchmark=benchmark)
        if any(row["value_of_done"] is not None for row in rows):
            columns = _columns(rows)
            tables += [
                _table(contents, benchmark, rows, shown, is_open=on_paper)
                for shown in (_sheets(columns) if on_paper else [columns])
            ]
    legend = f"<p>{f'{LEGEND} ' if sure else ''}{_COUNTED}</p>" if tables else ""
    shown = "".join(tables)
    return legend + (f'<div class="sheets">{shown}</div>' if on_paper and shown else shown)


def _columns(rows: list[Row]) -> list[Column]:
    return sorted(
        dict.fromkeys((row["task"], row["eval_length"]) for row in rows),
        key=lambda column: (_first(rows, column[0]), column[1]),
    )


def _sheets(columns: Sequence[Column]) -> Iterator[list[Column]]:
    """Split columns into groups of at most `MOST_COLUMNS`.

    A task's columns stay in one group, unless the task has more than `MOST_COLUMNS`.
    """
    sheet: list[Column] = []
    for task in dict.fromkeys(task for task, _ in columns):
        mine = [column for column in columns if column[0] == task]
        if sheet and len(sheet) + len(mine) > MOST_COLUMNS:
            yield sheet
            sheet = []
        sheet += mine
        while len(sheet) > MOST_COLUMNS:
            yield sheet[:MOST_COLUMNS]
            sheet = sheet[MOST_COLUMNS:]
    if sheet:
        yield sheet


def _table(
    contents: Contents,
    benchmark: str,
    rows: list[Row],
    columns: Sequence[Column],
    *,
    is_open: bool,
) -> str:
    sure, same = verdicts(contents), duplicates(contents)
    counts = {
        (row["task"], row["eval_length"]): row
        for row in select(contents.sample_counts, benchmark=benchmark)
    }
    title = benchmark.replace("_", " ")
    known = next(row for row in rows if row["metric"] is not None)
    better = "higher" if known["higher_is_better"] else "lower"
    tasks = dict.fromkeys(task for task, _ in columns)
    spans = {task: sum(one == task for one, _ in columns) for task in tasks}
    groups = "".join(
        f'<th class="group" scope="colgroup" colspan="{spans[task]}">'
        f"{escape(task.replace('_', ' '))}</th>"
        for task in tasks
    )
    heads = "".join(
        f'<th class="number" scope="col" data-csv="{column[1]}">{column[1]:,}'
        f"{_counted(counts.get(column))}</th>"
        for column in columns
    )
    found = {(Variant.of(row), row["task"], row["eval_length"]): row for row in rows}
    body = "".join(
        f"<tr {row_data(one.method, one.frozen)}>{row_head(one, same)}"
        + "".join(_cell(found.get((one, *column)), rows, sure) for column in columns)
        + "</tr>"
        for one in ordered(contents)
        if any((one, *column) in found for column in columns)
    )
    head = f'<tr><td></td>{groups}</tr><tr><th scope="col">method</th>{heads}</tr>'
    return (
        f'<details class="task"{" open" * is_open} data-figure="{escape(title)} by task">'
        f"<summary><b>{escape(title)}</b>: {escape(known['metric'])}, {better} is better;"
        f" {len(tasks)} task{'s'[: len(tasks) > 1]}</summary>"
        f"{scrollable(head, body, 'scores')}"
        '<div class="tools" hidden><button type="button" data-save="csv">CSV</button></div>'
        "</details>"
    )


def _counted(row: Row | None) -> str:
    """Return the number of samples of a column's scores as HTML; "" if nothing is done."""
    if row is None:
        return ""
    number = f"{row['fewest']:,}" + f" to {row['most']:,}" * (row["fewest"] < row["most"])
    return f"<br><small>n = {number}</small>"


def _first(rows: list[Row], task: str) -> int:
    return next(number for number, row in enumerate(rows) if row["task"] == task)


def _cell(row: Row | None, rows: Sequence[Row], sure: Mapping[Place, str]) -> str:
    if row is None:
        return "<td></td>"
    about = f'data-task="{escape(row["task"])}" data-length="{row["eval_length"]}"'
    if row["value"] is None:
        done = f"{row['num_seeds']} of {row['num_planned']} seeds"
        mean = "" if row["value_of_done"] is None else f": ({formats.score(row['value_of_done'])})"
        return (
            f'<td class="number gone" {about} data-tooltip="{escape(row["missing"] or "")}">'
            f"{done}{mean}</td>"
        )
    text = formats.score(row["value"])
    text = f"<strong>{text}</strong>" if is_best(row, rows) else text
    if verdict := sure.get(place(row)):
        text += (
            f' <span role="img" aria-label="{verdict} than the base model">{MARKS[verdict]}</span>'
        )
    return f'<td class="number" {about} data-value="{row["value"]!r}">{text}</td>'
