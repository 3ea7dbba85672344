"""Sections: training loss and settings; the cost of each method."""

from __future__ import annotations

import json

from markupsafe import Markup

from dashboards.charts import scales
from dashboards.charts.line_panel import Axes
from dashboards.charts.lines import lines_of
from dashboards.contents import Contents, Row
from dashboards.families import Variant, duplicates, ordered
from dashboards.figure import Cell, Table, Value, code, figure, paragraph
from dashboards.sections.panels import family_panels, lines_table

_COSTS = {
    "num_cells": "cells (all seeds)", "train_tokens": "training tokens (all seeds)",
    "train_flops": "training FLOPs (all seeds)", "train_seconds": "training s (all seeds)",
    "peak_memory_gb": "peak memory of training (GB)", "eval_seconds": "evaluation s (all seeds)",
    "eval_tokens": "evaluated tokens (all seeds)", "eval_flops": "evaluation FLOPs (all seeds)",
}  # fmt: skip
_MATCHED = {
    "tokens": " Training tokens are matched, except where an entry sets its own number.",
    "flops": " Training FLOPs are matched, up to whole optimizer steps.",
}
"""Sentence about the matched training budget, by the study's `match`."""
_HEADS = (
    "trained", "text", "steps", "tokens per step", "tokens per row", "learning rate",
    "other settings",
)  # fmt: skip


def section(contents: Contents) -> Markup:
    """Return a figure with the loss curves of tuned methods, and a table of the settings.

    Without training runs it returns "".
    """
    title = "Training loss"
    axes = Axes(title, "tokens", "nats per token", x_scale=scales.within, marks=False)
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


def cost(contents: Contents) -> Markup:
    """Return a table of time, tokens and FLOPs by method, in the study's order."""
    known = {Variant.of(row): row for row in contents.costs if row["num_cells"]}
    if not known:
        return Markup()
    rows = [(one, known[one]) for one in map(Variant.of, contents.overview) if one in known]
    table = Table(
        ("method", *_COSTS.values()),
        [(one, *(row[name] for name in _COSTS)) for one, row in rows],
        duplicates(contents),
    )
    matched = ""
    if any(row["train_tokens"] for row in known.values()):
        matched = _MATCHED[contents.studies[0]["match"]]
    legend = paragraph(
        "Sums over all seeds. Identical computations can differ in seconds, because the machines"
        " (listed under Origin) may have done other work at the same time. FLOPs are estimates of"
        " the cost model. Peak memory: of tensors on one GPU; on a CPU, of the whole process,"
        " whose earlier trainings count too."
        f"{matched}"
    )
    return legend + table.saved("cost")
