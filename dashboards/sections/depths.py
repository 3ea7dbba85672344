"""Section: share of needles found by length and depth, one grid per method."""

from __future__ import annotations

from dashboards.charts.depth_grid import depth_grid_svg
from dashboards.contents import Contents
from dashboards.families import Variant, ordered
from dashboards.figure import Table, figure
from lce_core.study.variants import weights_label


def section(contents: Contents) -> str:
    """Return a figure with the grids of all methods; "" if there are no needle results.

    Args:
      contents: rows of one base model.
    """
    rows = contents.depths
    if not rows:
        return ""
    lengths = sorted({row["eval_length"] for row in rows})
    depths = sorted({row["depth"] for row in rows})
    order = ordered(contents)
    pictures = []
    for one in order:
        mine = {
            (row["eval_length"], row["depth"]): row["value"]
            for row in rows
            if Variant.of(row) == one
        }
        if mine:
            pictures.append(depth_grid_svg(one, lengths, depths, mine))
    table = Table(
        ("method", "weights", "length", "depth in %", "found", "samples"),
        [
            (
                row["method"],
                weights_label(row["frozen"]),
                row["eval_length"],
                row["depth"],
                row["value"],
                row["num_samples"],
            )
            for row in rows
        ],
    )
    caption = (
        "Columns: length in tokens. Rows: position of the needle, from the start of the text to its"
        " end. A stronger colour means that more needles were found."
    )
    return figure("Needles by length and depth", caption, pictures, table, "grids")
