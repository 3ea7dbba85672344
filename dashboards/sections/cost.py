"""Section: cost of each method."""

from __future__ import annotations

from dashboards.contents import Contents
from dashboards.families import Variant
from dashboards.figure import Table, table_with_csv
from lce_core.study.variants import weights_label


def section(contents: Contents) -> str:
    """Return a table of time, tokens and FLOPs by method, in the study's order.

    Args:
      contents: rows of one base model.
    """
    known = {Variant.of(row): row for row in contents.costs if row["cells"]}
    if not known:
        return ""
    table = Table(
        (
            "method", "weights", "cells", "training (s)", "evaluation (s)", "evaluated tokens",
            "evaluation FLOPs",
        ),
        [
            (
                one.method,
                weights_label(one.frozen),
                known[one]["cells"],
                known[one]["training_seconds"],
                known[one]["evaluation_seconds"],
                known[one]["tokens"],
                known[one]["flops"],
            )
            for one in map(Variant.of, contents.overview)
            if one in known
        ],
    )  # fmt: skip
    return (
        "<p>Seconds are summed over seeds. The machines, listed under Origin, may have done other"
        " work at the same time. Training: the last training run of each method. FLOPs are"
        f" estimates of the cost model.</p>{table_with_csv('cost', table)}"
    )
