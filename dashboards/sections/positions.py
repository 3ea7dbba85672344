"""Section: loss by position, one figure per text and length, the longest length first."""

from __future__ import annotations

from html import escape

from dashboards.against_base import band_label, bands, differences
from dashboards.charts import scales
from dashboards.charts.line_panel import Axes
from dashboards.contents import Contents, select
from dashboards.families import Variant, ordered
from dashboards.figure import figure
from dashboards.sections.panels import family_panels, lines_of, lines_table
from lce_core import formats
from lce_core.statistics.estimates import Estimate


def section(contents: Contents) -> str:
    """Return a figure for each text and length that has losses by position.

    Args:
      contents: rows of one base model.
    """
    study = contents.studies[0]
    figures = []
    places = dict.fromkeys((r["benchmark"], r["task"], r["eval_length"]) for r in contents.curves)
    for benchmark, task, length in places:
        rows = select(contents.curves, benchmark=benchmark, task=task, eval_length=length)
        title = f"Loss by position: {_named(task, length)}"
        axes = Axes(
            title,
            "position in the context (tokens)",
            "nats per token, lower is better",
            {"trained": study["trained_context"], "target": study["target_context"]},
            (),
            (),
            x_scale=scales.within,
            marks=False,
        )
        lines = lines_of(rows, "position", "nll")
        pictures = family_panels(contents, axes, lines)
        if pictures:
            says = (
                f"Negative log-likelihood in contexts of {length:,} tokens, in bins of"
                f" {rows[0]['width']:,}; mean over seeds, methods with a seed missing left out."
                " Where a line rises beyond the trained context, the method does not hold what it"
                " was extended to."
            )
            table = lines_table(lines, "position", "nats")
            figures.append(figure(title, says, pictures, table))
            figures.append(_against_base(contents, benchmark, task, length))
    return "".join(figures)


def _against_base(contents: Contents, benchmark: str, task: str, length: int) -> str:
    """Return a table of NLL differences from the base model on the same tokens, or ""."""
    study = contents.studies[0]
    rows = select(contents.positions, benchmark=benchmark, task=task, eval_length=length)
    parts = bands(study["trained_context"], length)
    found = {Variant(one.method, one.frozen): one.by_band for one in differences(rows, parts)}
    if not found:
        return ""
    columns = zip(*found.values(), strict=True)
    best = [min((one.value for one in column if one), default=None) for column in columns]
    heads = "".join(f'<th class="number" scope="col">{band_label(part)}</th>' for part in parts)
    body = "".join(
        f'<tr data-method="{escape(one.method)}" data-frozen="{str(one.frozen).lower()}">'
        f'<th scope="row">{escape(one.label)}</th>'
        + "".join(map(_gain, found[one], best))
        + "</tr>"
        for one in ordered(contents)
        if one in found
    )
    title = f"{_named(task, length)} against the base model"
    return (
        f'<details class="task" open data-figure="{escape(title)}">'
        f"<summary><b>{escape(title)}</b> at the same tokens, by position: nats a token, lower is"
        " better</summary><p>Intervals (95 %) are by bootstrap over bins of positions: they say how"
        " sure the difference is on the tokens that were read, not on other texts.</p>"
        '<div class="scroll" tabindex="0" role="group" aria-label="table"><table class="gains">'
        f'<thead><tr><th scope="col">method</th>{heads}</tr></thead><tbody>{body}</tbody></table>'
        '</div><div class="tools" hidden><button type="button" data-save="csv">CSV</button></div>'
        "</details>"
    )


def _named(task: str, length: int) -> str:
    return f"{task.replace('_', ' ')}, {length:,} tokens"


def _gain(found: Estimate | None, best: float | None) -> str:
    if found is None:
        return "<td></td>"
    text = formats.difference(found.value, found.low, found.high)
    shown = f"<b>{text}</b>" if found.value == best else text
    return f'<td class="number" data-value="{found.value!r}" data-csv="{text}">{shown}</td>'
