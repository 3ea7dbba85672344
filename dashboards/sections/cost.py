"""Section: cost of each method."""

from __future__ import annotations

from dashboards.contents import Contents
from dashboards.families import Variant, duplicates
from dashboards.figure import Table, table_with_csv

_MATCHED = {
    "tokens": " Training tokens are matched, except where an entry sets its own number.",
    "flops": " Training FLOPs are matched, up to whole optimizer steps.",
}
"""Sentence about the matched training budget, by the study's `match`."""


def section(contents: Contents) -> str:
    """Return a table of time, tokens and FLOPs by method, in the study's order.

    Args:
      contents: rows of one base model.
    """
    known = {Variant.of(row): row for row in contents.costs if row["num_cells"]}
    if not known:
        return ""
    table = Table(
        (
            "method", "cells (all seeds)", "training tokens (all seeds)",
            "training FLOPs (all seeds)", "training s (all seeds)", "peak memory of training (GB)",
            "evaluation s (all seeds)", "evaluated tokens (all seeds)",
            "evaluation FLOPs (all seeds)",
        ),
        [
            (
                one,
                known[one]["num_cells"],
                known[one]["train_tokens"],
                known[one]["train_flops"],
                known[one]["train_seconds"],
                known[one]["peak_memory_gb"],
                known[one]["eval_seconds"],
                known[one]["eval_tokens"],
                known[one]["eval_flops"],
            )
            for one in map(Variant.of, contents.overview)
            if one in known
        ],
        duplicates(contents),
    )  # fmt: skip
    matched = ""
    if any(row["train_tokens"] for row in known.values()):
        matched = _MATCHED[contents.studies[0]["match"]]
    return (
        "<p>Sums over all seeds. Identical computations can differ in seconds, because the machines"
        " (listed under Origin) may have done other work at the same time. FLOPs are estimates of"
        " the cost model. Peak memory: of tensors on one GPU; on a CPU, of the whole process,"
        " whose earlier trainings count too."
        f"{matched}</p>{table_with_csv('cost', table)}"
    )
