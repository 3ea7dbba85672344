"""Section: share of needles found by length and depth, one grid per benchmark task and method."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from dashboards.charts.heat_map import depth_grid_svg, ramp_html
from dashboards.contents import Contents, Row, select
from dashboards.families import Variant, ordered
from dashboards.figure import Table, figure
from lce_core.study.variants import weights_label

_HEADS = {
    "method": "method", "weights": "weights", "eval_length": "length", "depth": "depth in %",
    "value": "found", "num_samples": "samples",
}  # fmt: skip


def section(contents: Contents) -> Markup:
    """Return a figure with the grids of all methods for each task; "" if there are no results."""
    found = dict.fromkeys((row["benchmark"], row["task"]) for row in contents.depths)
    alone = len(found) == 1
    return Markup("").join(
        _figure(
            "" if alone else f": {benchmark}/{task}".replace("_", " "),
            ordered(contents),
            select(contents.depths, benchmark=benchmark, task=task),
        )
        for benchmark, task in found
    )


def _figure(of: str, methods: Sequence[Variant], rows: Sequence[Row]) -> Markup:
    lengths = sorted({row["eval_length"] for row in rows})
    depths = sorted({row["depth"] for row in rows})
    pictures = []
    for one in methods:
        mine = {
            (row["eval_length"], row["depth"]): row["value"]
            for row in rows
            if Variant.of(row) == one
        }
        if mine:
            pictures.append(depth_grid_svg(one, lengths, depths, mine))
    labelled = [{**row, "weights": weights_label(row["frozen"])} for row in rows]
    table = Table.of(labelled, _HEADS)
    caption = Markup(
        "Columns: length in tokens. Rows: position of the needle, from the start of the text to its"
        " end. Colour: share of needles found."
    ) + ramp_html("none", "all")
    return figure(f"Needles by length and depth{of}", caption, pictures, table, "grids")
