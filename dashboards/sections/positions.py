"""Loss by position in the longest context, by family."""

from __future__ import annotations

from dashboards.charts import scales
from dashboards.charts.line_panel import Axes
from dashboards.contents import Contents, select
from dashboards.figure import figure
from dashboards.sections.panels import family_panels, lines_of, lines_table


def section(contents: Contents) -> str:
    """A figure for each text whose loss by position was kept.

    Args:
      contents: of one base model.
    """
    study = contents.studies[0]
    figures = []
    for benchmark, task in dict.fromkeys((r["benchmark"], r["task"]) for r in contents.curves):
        rows = select(contents.curves, benchmark=benchmark, task=task)
        title = f"Loss by position: {task.replace('_', ' ')}"
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
            length = rows[0]["eval_length"]
            says = (
                f"Negative log-likelihood in contexts of {length:,} tokens, in bins of"
                f" {max(1, length // 32):,}; mean over seeds, methods with a seed missing left out."
                " Where a line rises behind the trained context, the method does not hold what it"
                " was extended to."
            )
            table = lines_table(lines, "position", "nats")
            figures.append(figure(title, says, pictures, table))
    return "".join(figures)
