"""Section: factors other than the method that differ between compared cells."""

from __future__ import annotations

from dashboards.contents import Contents
from dashboards.figure import Table


def section(contents: Contents) -> str:
    """Return a table of factors that differ, or a sentence that only the method differs.

    Returns "" if no cell is done.
    """
    if not contents.run[0]["done"]:
        return ""
    if not contents.violations:
        return "<p>Cells that are compared differ in the method only.</p>"
    table = Table(
        ("factor", "among", "cells", "methods", "is", "usually", "benchmarks"),
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
        "<p>Cells that are compared also differ in these factors. Consider them before you"
        f" attribute a difference to the method.</p>{table.html()}"
    )
