"""Sections: trials of `tune`; training loss and settings; the cost of each method."""

import json
from collections.abc import Sequence

from markupsafe import Markup

from dashboards.charts.line_panel import Axes, lines_of
from dashboards.charts.scales import WithTicks, logarithmic, within
from dashboards.contents import Contents, Row
from dashboards.families import Variant, duplicates, ordered
from dashboards.figure import Cell, Table, Value, code, paragraph, score_cell
from dashboards.sections.curves import line_figure

AT_EDGE = "the best value is at the edge of the grid"
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
_HEADS = (
    "trained", "text", "steps", "tokens per step", "tokens per row", "learning rate",
    "other settings",
)  # fmt: skip


def tuning(contents: Contents) -> Markup:
    rows = contents.trials
    if not rows:
        return Markup()
    field = rows[0]["field"].replace("_", " ")
    lines = lines_of(rows, "value", "nll")
    axes = Axes("Response curves", field, "nats per token", x_scale=_grid)
    caption = (
        f"Validation loss of each method's trial with each {field}, on text that the study does not"
        " report."
    )
    if any(Variant.of(row).is_control for row in rows):
        caption += " Grey: the base model, fine-tuned without an extension."
    shown = line_figure(contents, axes, lines, caption, "nll", field)
    shown += trials(contents).saved("trials")
    if not contents.own_best:
        return shown
    about = paragraph(
        f"Each method at the common {field} and at its own best one, with its rank among these"
        " methods. Verdict: its own best value compared with the common one, over the study's"
        " seeds."
    )
    return shown + about + own_best(contents).saved("own best")


def _grid(values: Sequence[float], start: float, end: float) -> WithTicks:
    """Return an axis with a tick at each value: logarithmic unless a value is 0."""
    scale, _ = (logarithmic if min(values) > 0 else within)(values, start, end)
    return scale, sorted(set(values))


def trials(contents: Contents) -> Table:
    rows = contents.trials
    values = sorted({row["value"] for row in rows})
    nll = {
        (row["method"], row["value"]): score_cell(row["nll"], is_best=row["chosen"]) for row in rows
    }
    edges = {row["method"] for row in rows if row["at_edge"]}
    return Table(
        ("method", *(f"{value:g}" for value in values), "note"),
        [
            (method, *(nll[method, value] for value in values), AT_EDGE if method in edges else "")
            for method in dict.fromkeys(row["method"] for row in rows)
        ],
    )


def own_best(contents: Contents) -> Table:
    columns = (
        "benchmark", "eval_length", "method", "common_value", "common_score", "common_rank",
        "own_value", "own_score", "own_rank", "verdict",
    )  # fmt: skip
    return Table(
        tuple(name.replace("_", " ").replace("eval ", "") for name in columns),
        [
            tuple(f"{row[n]:g}" if n.endswith("_value") else row[n] for n in columns)
            for row in contents.own_best
        ],
    )


def training(contents: Contents) -> Markup:
    axes = Axes("Training loss", "tokens", "nats per token", x_scale=within, marks=False)
    lines = lines_of(contents.trainings, "tokens", "loss")
    caption = (
        "Loss of each method's last training run, mean over seeds. Grey: the base model, fine-tuned"
        " on the same data without an extension. Losses at different training lengths are not"
        " comparable, because they are measured on different text."
    )
    shown = line_figure(contents, axes, lines, caption, "loss", "tokens")
    if rows := [_row(contents, row) for row in contents.training_settings]:
        shown += Markup("<h3>Settings</h3>") + Table(_HEADS, rows, kind="settings").html()
    return shown


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
