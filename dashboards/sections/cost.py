"""Section: cost of each method."""

from __future__ import annotations

from markupsafe import Markup

from dashboards.contents import Contents
from dashboards.families import Variant, duplicates
from dashboards.figure import Table, paragraph

_HEADS = {
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


def section(contents: Contents) -> Markup:
    """Return a table of time, tokens and FLOPs by method, in the study's order."""
    known = {Variant.of(row): row for row in contents.costs if row["num_cells"]}
    if not known:
        return Markup()
    rows = [(one, known[one]) for one in map(Variant.of, contents.overview) if one in known]
    table = Table(
        ("method", *_HEADS.values()),
        [(one, *(row[name] for name in _HEADS)) for one, row in rows],
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
