"""Section: training loss against number of tokens, one panel per family of methods."""

from __future__ import annotations

from dashboards.charts import scales
from dashboards.charts.line_panel import Axes
from dashboards.contents import Contents
from dashboards.figure import figure
from dashboards.sections.panels import family_panels, lines_of, lines_table


def section(contents: Contents) -> str:
    """Return a figure with the loss curves of tuned methods; "" if no method was trained.

    Args:
      contents: rows of one base model.
    """
    title = "Training loss"
    axes = Axes(title, "tokens", "nats per token", {}, (), (), x_scale=scales.within, marks=False)
    lines = lines_of(contents.trainings, "tokens", "loss")
    pictures = family_panels(contents, axes, lines)
    if not pictures:
        return ""
    caption = (
        "Loss of each method's last training run, mean over seeds. Grey: the base model, fine-tuned"
        " on the same data without an extension. Losses at different training lengths are not"
        " comparable, because they are measured on different text."
    )
    return figure(title, caption, pictures, lines_table(lines, "loss", "tokens"))
