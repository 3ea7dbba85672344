"""Section: loss by position in the context, one figure for each text and length."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dashboards.against_base import band_label, by_variant, difference_text
from dashboards.charts import scales
from dashboards.charts.line_panel import Axes
from dashboards.charts.marks import row_data
from dashboards.contents import Contents, Row, select
from dashboards.families import duplicates, ordered
from dashboards.figure import figure, row_head, scrollable
from dashboards.sections.panels import family_panels, lines_of, lines_table


def section(contents: Contents) -> str:
    """Return, for each text and length with losses by position, a figure and a table.

    The table compares methods with the base model.

    Args:
      contents: rows of one base model.
    """
    figures = []
    places = dict.fromkeys((r["benchmark"], r["task"], r["eval_length"]) for r in contents.curves)
    for benchmark, task, length in places:
        rows = select(contents.curves, benchmark=benchmark, task=task, eval_length=length)
        charts = panels(contents, rows)
        if charts:
            caption = (
                f"Negative log-likelihood in contexts of {length:,} tokens, averaged over bins of"
                f" {rows[0]['width']:,} positions and over seeds. Methods with a missing seed are"
                " left out. A line that rises beyond the trained context shows that the method"
                " fails to extend it."
            )
            table = lines_table(lines_of(rows, "position", "nll"), "nats", "position")
            figures.append(figure(_title(task, length), caption, charts, table))
            figures.append(_against_base(contents, benchmark, task, length))
    return "".join(figures)


def panels(contents: Contents, rows: Sequence[Row]) -> list[str]:
    """Return an SVG panel per family for one text at one length; an empty list without values.

    Args:
      contents: rows of one base model.
      rows: rows of the query `curves` for the text and length.
    """
    study, first = contents.studies[0], rows[0]
    axes = Axes(
        _title(first["task"], first["eval_length"]),
        "position in the context (tokens)",
        "nats per token, lower is better",
        {"trained": study["trained_context"], "target": study["target_context"]},
        (),
        (),
        x_scale=scales.within,
        marks=False,
    )
    return family_panels(contents, axes, lines_of(rows, "position", "nll"))


def _title(task: str, length: int) -> str:
    return f"Loss by position: {_named(task, length)}"


def _against_base(contents: Contents, benchmark: str, task: str, length: int) -> str:
    """Return a table of NLL differences from the base model on the same tokens; "" if none."""
    found = by_variant(
        select(contents.nll_differences, benchmark=benchmark, task=task, eval_length=length)
    )
    if not found:
        return ""
    same = duplicates(contents)
    columns = list(zip(*found.values(), strict=True))
    heads = "".join(
        f'<th class="number" scope="col">{band_label(bands[0])}</th>' for bands in columns
    )
    best = [
        min((one["difference"] for one in bands if one["difference"] is not None), default=None)
        for bands in columns
    ]
    body = "".join(
        f"<tr {row_data(one.method, one.frozen)}>{row_head(one, same)}"
        + "".join(map(_gain, found[one], best))
        + "</tr>"
        for one in ordered(contents)
        if one in found
    )
    head = f'<tr><th scope="col">method</th>{heads}</tr>'
    title = f"{_named(task, length)} against the base model"
    return (
        f'<details class="task" open data-figure="{escape(title)}">'
        f"<summary><b>{escape(title)}</b> on the same tokens, by position: nats per token, lower"
        " is better</summary><p>Brackets contain 95 % intervals by bootstrap over bins of positions"
        " of the evaluated text. The intervals do not cover other texts.</p>"
        f"{scrollable(head, body, 'gains')}"
        '<div class="tools" hidden><button type="button" data-save="csv">CSV</button></div>'
        "</details>"
    )


def _named(task: str, length: int) -> str:
    return f"{task.replace('_', ' ')}, {length:,} tokens"


def _gain(band: Row, best: float | None) -> str:
    value = band["difference"]
    if value is None:
        return "<td></td>"
    text = difference_text(band)
    shown = f"<b>{text}</b>" if value == best else text
    return f'<td class="number" data-value="{value!r}" data-csv="{text}">{shown}</td>'
