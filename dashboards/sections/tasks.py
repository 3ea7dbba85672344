"""Section: one table per benchmark, with the scores by task and length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from dashboards.comparable import is_best
from dashboards.contents import Contents, Row, select
from dashboards.families import Variant, ordered
from dashboards.marks import LEGEND, MARKS, Place, place, verdicts
from lce_core import formats

Column = tuple[str, int]
"""A column of a table: task and length in tokens."""
MOST_COLUMNS = 10
"""Maximum number of columns of a table on paper."""


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
    order, sure = ordered(contents), verdicts(contents)
    tables = []
    for benchmark in dict.fromkeys(row["benchmark"] for row in contents.scores):
        rows = select(contents.scores, benchmark=benchmark)
        if any(row["value_of_done"] is not None for row in rows):
            columns = _columns(rows)
            tables += [
                _table(benchmark.replace("_", " "), rows, shown, order, sure, is_open=on_paper)
                for shown in (_sheets(columns) if on_paper else [columns])
            ]
    legend = f"<p>{LEGEND}</p>" if tables and sure else ""
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
    benchmark: str,
    rows: list[Row],
    columns: Sequence[Column],
    order: list[Variant],
    sure: Mapping[Place, str],
    *,
    is_open: bool,
) -> str:
    known = next(row for row in rows if row["metric"] is not None)
    better = "higher" if known["higher_is_better"] else "lower"
    tasks = dict.fromkeys(task for task, _ in columns)
    spans = {task: sum(one == task for one, _ in columns) for task in tasks}
    groups = "".join(
        f'<th class="group" scope="colgroup" colspan="{spans[task]}">'
        f"{escape(task.replace('_', ' '))}</th>"
        for task in tasks
    )
    heads = "".join(f'<th class="number" scope="col">{length:,}</th>' for _, length in columns)
    found = {(Variant.of(row), row["task"], row["eval_length"]): row for row in rows}
    body = "".join(
        f'<tr data-method="{escape(one.method)}" data-frozen="{str(one.frozen).lower()}">'
        f'<th scope="row">{escape(one.label)}</th>'
        + "".join(_cell(found.get((one, *column)), rows, sure) for column in columns)
        + "</tr>"
        for one in order
        if any((one, *column) in found for column in columns)
    )
    return (
        f'<details class="task"{" open" * is_open} data-figure="{escape(benchmark)} by task">'
        f"<summary><b>{escape(benchmark)}</b>: {escape(known['metric'])}, {better} is better;"
        f" {len(tasks)} task{'s'[: len(tasks) > 1]}</summary>"
        '<div class="scroll" tabindex="0" role="group" aria-label="table"><table class="scores">'
        f'<thead><tr><td></td>{groups}</tr><tr><th scope="col">method</th>{heads}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
        '<div class="tools" hidden><button type="button" data-save="csv">CSV</button></div>'
        "</details>"
    )


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
