"""Section: training loss against number of tokens, one panel per family of methods; settings."""

from __future__ import annotations

import json

from markupsafe import Markup

from dashboards.charts import scales
from dashboards.charts.line_panel import Axes
from dashboards.contents import Contents, Row
from dashboards.families import Variant, ordered
from dashboards.figure import Cell, Table, Value, code, figure
from dashboards.sections.panels import family_panels, lines_of, lines_table

_HEADS = (
    "trained", "text", "steps", "tokens per step", "tokens per row", "learning rate",
    "other settings",
)  # fmt: skip


def section(contents: Contents) -> Markup:
    """Return a figure with the loss curves of tuned methods, and a table of the settings.

    Without training runs it returns "".
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


def _settings(contents: Contents) -> Markup:
    if not contents.training_settings:
        return Markup()
    rows = [_row(contents, row) for row in contents.training_settings]
    return Markup("<h3>Settings</h3>") + Table(_HEADS, rows, kind="settings").html()


def _row(contents: Contents, row: Row) -> list[Value]:
    settings = json.loads(row["settings"] or "{}")
    step, rate = settings.pop("tokens_per_step", None), settings.pop("learning_rate", None)
    others = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())
    used = {Variant.of(one) for one in row["methods"]}
    names = Markup(", ").join(code(one.label) for one in ordered(contents) if one in used)
    return [
        names if row["is_finetuning"] else "the base model",
        row["corpus"],
        *(number or None for number in (row["num_steps"], step, row["row_length"])),
        Cell("" if rate is None else f"{rate:g}", {"class": "number"}),
        others,
    ]
