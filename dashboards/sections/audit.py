"""Section: factors other than the method that differ between compared cells."""

from __future__ import annotations

from dashboards.contents import Contents
from dashboards.figure import Table


def section(contents: Contents) -> str:
    """Return a table of the study's control violations, or a sentence if there are none."""
    if not contents.run[0]["done"]:
        return ""
    if not contents.violations:
        return "<p>Nothing but the method differs between cells that are compared.</p>"
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
        "<p>Besides the method, this differs between cells that are compared. Weigh it before a"
        f" difference is put down to the method.</p>{table.html()}"
    )
