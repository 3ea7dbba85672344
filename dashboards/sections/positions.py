"""Section: loss by position in the context, one figure for each text and length."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from dashboards.charts import scales
from dashboards.charts.line_panel import Axes
from dashboards.charts.lines import lines_of
from dashboards.contents import Contents, Row, select
from dashboards.families import Variant, duplicates, ordered
from dashboards.figure import Cell, Table, Value, figure
from dashboards.sections.panels import family_panels, lines_table
from lce_core import formats


def section(contents: Contents) -> Markup:
    """Return, for each text and length with losses by position, a figure and a table.

    The table compares methods with the base model.
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
    return Markup("").join(figures)


def panels(contents: Contents, rows: Sequence[Row]) -> list[str]:
    """Return an SVG panel per family for one text at one length; an empty list without values."""
    study, first = contents.studies[0], rows[0]
    axes = Axes(
        _title(first["task"], first["eval_length"]),
        "position in the context (tokens)",
        "nats per token, lower is better",
        {"trained": study["trained_context"], "target": study["target_context"]},
        x_scale=scales.within,
        marks=False,
    )
    return family_panels(contents, axes, lines_of(rows, "position", "nll"))


def _title(task: str, length: int) -> str:
    return f"Loss by position: {_named(task, length)}"


def _against_base(contents: Contents, benchmark: str, task: str, length: int) -> Markup:
    """Return a table of NLL differences from the base model on the same tokens; "" if none."""
    found = by_variant(
        select(contents.nll_differences, benchmark=benchmark, task=task, eval_length=length)
    )
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
    title = f"{_named(task, length)} against the base model"
    return table.folded(
        title,
        title,
        " on the same tokens, by position: nats per token, lower is better",
        note="Brackets contain 95 % intervals by bootstrap over bins of positions of the evaluated"
        " text. The intervals do not cover other texts.",
    )


def _named(task: str, length: int) -> str:
    return f"{task.replace('_', ' ')}, {length:,} tokens"


def _gain(band: Row, best: float | None) -> Value:
    value = band["difference"]
    if value is None:
        return None
    text = difference_text(band)
    shown = Markup("<b>{}</b>").format(text) if value == best else text
    return Cell(shown, {"class": "number", "data-value": repr(value), "data-csv": text})


def by_variant(rows: Sequence[Row]) -> dict[Variant, list[Row]]:
    """Return the rows of each variant (method, frozen or tuned), one per band of positions."""
    found: dict[Variant, list[Row]] = {}
    for row in rows:
        found.setdefault(Variant.of(row), []).append(row)
    return found


def band_label(band: Row) -> str:
    """Return the column header of a band, such as "1,024 to 2,048", or "to 1,024" for the first."""
    end = f"to {band['band_end']:,}"
    return f"{band['band_start']:,} {end}" if band["band_start"] else end


def difference_text(band: Row) -> str:
    """Format a band's NLL difference and its 95 % interval; "" if the difference is NULL."""
    if band["difference"] is None:
        return ""
    return formats.difference(band["difference"], band["ci_low"], band["ci_high"])
