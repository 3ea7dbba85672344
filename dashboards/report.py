"""A study as one static HTML file that needs nothing else: no server, no network, no other file.

It holds the overview, a chart of score against length per benchmark, the cells without a result and
why, and how to run it again. It reads the catalog only, and every number in it is a number there.
The same catalog always gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any

from dashboards.contents import Contents, Row, read_contents, select
from dashboards.figures import Chart, chart_svg, swatch_svg
from dashboards.lines import Gap, Line, Point
from dashboards.tables import environment_table, missing_table, numbers_table, overview_table
from lce_core.errors import SpecError

_FOLDER = Path(__file__).parent
_CONTROL = "none"


def write_report(catalog: Path, study: str, out: Path) -> Path:
    """Writes the report of one study; returns `out`.

    Args:
      catalog: The catalog, as `catalog.build` makes it.
      study: Name of a study in it.
      out: The HTML file; its folder is made if need be, an earlier report is replaced.

    Raises:
      SpecError: there is no catalog, it does not hold the study, or the file cannot be written.
    """
    page = render(read_contents(catalog, study))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = out.with_name(f".{out.name}.aside")
        aside.write_text(page, encoding="utf-8")
        aside.replace(out)
    except OSError as error:
        raise SpecError(
            "--out",
            f"{out}, which cannot be written ({error.strerror})",
            "a writable file",
            "choose another",
        ) from error
    return out


def render(contents: Contents) -> str:
    """The page as text."""
    body = "\n".join(
        [
            _header(contents),
            *(_base_model(contents, row) for row in contents.studies),
            _missing(contents),
            _footer(contents),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # The browser itself then refuses any request this page might make.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(contents.study)}</title>\n<style>\n{_asset('report.css')}</style>\n"
        f"</head>\n<body>\n<main>\n{body}\n</main>\n<script>\n{_asset('report.js')}</script>\n"
        "</body>\n</html>\n"
    )


def _header(contents: Contents) -> str:
    run, first = contents.run[0], contents.studies[0]
    bases = ", ".join(
        f"{row['base_model']} (trained at {row['trained_context']} tokens)"
        for row in contents.studies
    )
    facts = {
        "base model": bases,
        "target context": f"{first['target_context']} tokens",
        "seeds": str(run["seeds"]),
        "cells": f"{run['done']} of {run['cells']} done",
        "profile": run["profiles"] or "-",
        "attention kernel": run["kernels"] or "-",
        "commit": ", ".join(dict.fromkeys(_commit(row) for row in contents.environments)) or "-",
        "date": f"{run['last']:%Y-%m-%d}" if run["last"] else "nothing has been run yet",
    }
    items = "".join(
        f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items()
    )
    return (
        f"<header><h1>{escape(contents.study)}</h1>"
        f'<p class="hypothesis"><b>Hypothesis.</b> {escape(first["hypothesis"] or "-")}</p>'
        f"<dl>{items}</dl></header>"
    )


def _base_model(contents: Contents, study: Row) -> str:
    base = study["base_model"]
    heading = f": {escape(base)}" if len(contents.studies) > 1 else ""
    rows = select(contents.overview, base_model=base)
    lines = [Line(row["method"], row["frozen"]) for row in rows]
    styles = _styles(row["method"] for row in rows)
    figures = "\n".join(_figures(contents, study, styles))
    legend = "".join(
        f'<button type="button" data-method="{escape(line.method)}" aria-pressed="false">'
        f"{swatch_svg(line, styles[line.method])}{escape(line.label)}</button>"
        for line in lines
    )
    charts = (
        f"<section><h2>Score against length{heading}</h2>"
        "<p>Mean over seeds; the whiskers and bands go from the lowest to the highest seed. Dashed"
        " lines with hollow marks are methods applied to frozen weights, solid ones were"
        " fine-tuned. A line is broken where a seed has no result: a small cross is the mean of"
        " the others, not to be compared. Point at a method to follow it through all charts; click"
        " to keep it.</p>"
        f'<div class="legend">{legend}</div><div class="charts">{figures}</div></section>'
        if figures
        else ""
    )
    return (
        f"<section><h2>Overview{heading}</h2>"
        '<p>Mean over tasks and seeds. <strong class="sample">Marked</strong>: best of the column'
        " among methods whose cells are all done. Others have no mean: in brackets is that of the"
        " cells they have, not to be compared; for the reasons see below.</p>"
        f'<div class="scroll">{overview_table(contents, base)}</div></section>{charts}'
    )


def _figures(contents: Contents, study: Row, styles: dict[str, int]) -> Iterator[str]:
    base = study["base_model"]
    marks = {"trained": study["trained_context"], "target": study["target_context"]}
    scores = select(contents.scores, base_model=base)
    positions = select(contents.positions, base_model=base)
    for benchmark, task in _distinct(scores, "benchmark", "task"):
        rows = select(scores, benchmark=benchmark, task=task)
        known = next((row for row in rows if row["metric"] is not None), None)
        if known is None:
            continue
        if len({row["eval_length"] for row in rows}) == 1 and select(
            positions, benchmark=benchmark, task=task
        ):
            continue  # at one length the curve over positions below says more
        better = "higher" if known["higher_is_better"] else "lower"
        metric, unit = known["metric"], known["unit"] or ""
        measure = metric if unit == metric else f"{metric} ({unit})"
        chart = Chart(
            title=_title(benchmark, task),
            x_name="evaluated length (tokens)",
            y_name=f"{measure}, {better} is better",
            landmarks=marks,
            log_y=unit == "perplexity",
        )
        yield _figure(chart, _lines(rows, "eval_length", "value"), styles)
    for benchmark, task, length in _distinct(positions, "benchmark", "task", "eval_length"):
        rows = select(positions, benchmark=benchmark, task=task)
        chart = Chart(
            title=f"{_title(benchmark, task)} in {length} tokens",
            x_name="position in the context (tokens)",
            y_name="negative log-likelihood (nats), lower is better",
            landmarks=marks,
            log_x=False,
            marks=False,
        )
        yield _figure(chart, _lines(rows, "position_bin", "nll"), styles)


def _figure(chart: Chart, lines: list[Line], styles: dict[str, int]) -> str:
    return (
        f"<figure><figcaption>{escape(chart.title)}</figcaption>{chart_svg(chart, lines, styles)}"
        f'<details><summary>numbers</summary><div class="scroll">{numbers_table(chart, lines)}'
        "</div></details></figure>"
    )


def _lines(rows: list[Row], x: str, value: str) -> list[Line]:
    lines = []
    for method, frozen in _distinct(rows, "method", "frozen"):
        found = sorted(select(rows, method=method, frozen=frozen), key=lambda row: row[x])
        points = tuple(
            Point(row[x], row[value], row["lowest"], row["highest"], row["num_seeds"])
            for row in found
            if row[value] is not None
        )
        counts = ("value_of_done", "num_seeds", "num_planned", "missing")
        gaps = tuple(
            Gap(row[x], *(row[name] for name in counts)) for row in found if row[value] is None
        )
        lines.append(Line(method, frozen, points, gaps))
    return lines


def _missing(contents: Contents) -> str:
    if not contents.missing:
        return ""
    count = sum(row["cells"] for row in contents.missing)
    cells = "1 cell has" if count == 1 else f"{count} cells have"
    return (
        f"<section><h2>Without a result</h2><p>{cells} no result. <i>unavailable</i>: it cannot be;"
        " <i>failed</i>: it was tried; <i>missing</i>: not computed yet.</p>"
        f'<div class="scroll">{missing_table(contents)}</div></section>'
    )


def _footer(contents: Contents) -> str:
    commits = dict.fromkeys(row["git_commit"] for row in contents.environments if row["git_commit"])
    commands = [
        *(f"git checkout {commit}" for commit in list(commits)[-1:]),
        "python3 -m venv .venv",
        ".venv/bin/pip install -c constraints.txt -e .",
        f".venv/bin/lce run {contents.study}",
        f".venv/bin/lce sql \"FROM scores WHERE study = '{contents.study}'\"",
    ]
    table = (
        f'<div class="scroll">{environment_table(contents)}</div>' if contents.environments else ""
    )
    return (
        "<footer><h2>Environment, and how to reproduce</h2>"
        f"<pre>{escape(chr(10).join(commands))}</pre>{table}</footer>"
    )


def _styles(methods: Iterable[str]) -> dict[str, int]:
    others = [method for method in dict.fromkeys(methods) if method != _CONTROL]
    return {_CONTROL: 0, **{method: number for number, method in enumerate(others, start=1)}}


def _distinct(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return list(dict.fromkeys(tuple(row[name] for name in names) for row in rows))


def _title(benchmark: str, task: str) -> str:
    name = benchmark.replace("_", " ")
    return name if task == benchmark else f"{name}: {task}"


def _commit(row: Row) -> str:
    if row["git_commit"] is None:
        return "not from a checkout"
    dirty = " with uncommitted changes" if row["git_dirty"] else ""
    return f"{row['git_commit'][:12]}{dirty}"


def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
