"""Section: factors other than the method that differ between compared cells."""

from __future__ import annotations

from dashboards.contents import Contents
from dashboards.figure import Table


def section(contents: Contents) -> str:
    """Return a table of the factors that differ, or a sentence if only the method differs.

    Return "" if no cell is done.
    """
    if not contents.run[0]["done"]:
        return ""
    if not contents.violations:
        return "<p>Compared cells differ only in the method.</p>"
    table = Table(
        ("factor", "among", "cells", "methods", "value", "usual value", "benchmarks"),
        [
            (
                row["factor"],
                row["among"],
                row["cells"],
                row["methods"],
                row["value"],
                row["usual"],
                row["benchmarks"],
            )
            for row in contents.violations
        ],
    )
    return (
        "<p>Compared cells also differ in these factors. Consider the factors before you attribute"
        f" a difference to the method.</p>{table.html()}"
    )
