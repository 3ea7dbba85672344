"""Section: training loss against number of tokens, one panel per family of methods; settings."""

from __future__ import annotations

import json
from html import escape

from dashboards.charts import scales
from dashboards.charts.line_panel import Axes
from dashboards.contents import Contents, Row
from dashboards.families import Variant, ordered
from dashboards.figure import code, figure, heads, scrollable
from dashboards.sections.panels import family_panels, lines_of, lines_table

_HEADS = (
    "trained", "text", "steps", "tokens per step", "tokens per row", "learning rate",
    "other settings",
)  # fmt: skip


def section(contents: Contents) -> str:
    """Return a figure with the loss curves of tuned methods, and a table of the settings.

    Without training runs it returns "".

    Args:
      contents: rows of one base model.
    """
    title = "Training loss"
    axes = Axes(title, "tokens", "nats per token", {}, (), (), x_scale=scales.within, marks=False)
    lines = lines_of(contents.trainings, "tokens", "loss")
    pictures = family_panels(contents, axes, lines)
    if not pictures:
        return _settings(contents)
    caption = (
        "Loss of each method's last training run, mean over seeds. Grey: the base model, fine-tuned"
        " on the same data without an extension. Losses at different training lengths are not"
        " comparable, because they are measured on different text."
    )
    drawn = figure(title, caption, pictures, lines_table(lines, "loss", "tokens"))
    return drawn + _settings(contents)


def _settings(contents: Contents) -> str:
    if not contents.training_settings:
        return ""
    rows = "".join(_row(contents, row) for row in contents.training_settings)
    return f"<h3>Settings</h3>{scrollable(heads(*_HEADS), rows, 'settings')}"


def _row(contents: Contents, row: Row) -> str:
    settings = json.loads(row["settings"] or "{}")
    step, rate = settings.pop("tokens_per_step", None), settings.pop("learning_rate", None)
    others = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())
    used = {Variant.of(one) for one in row["methods"]}
    names = ", ".join(code(one.label) for one in ordered(contents) if one in used)
    numbers = (row["num_steps"], step, row["row_length"])
    return (
        f'<tr><th scope="row">{names if row["is_finetuning"] else "the base model"}</th>'
        f"<td>{escape(row['corpus'] or '')}</td>"
        + "".join(f'<td class="number">{one:,}</td>' if one else "<td></td>" for one in numbers)
        + f'<td class="number">{"" if rate is None else f"{rate:g}"}</td>'
        f"<td>{escape(others)}</td></tr>"
    )
