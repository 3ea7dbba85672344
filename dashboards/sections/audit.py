"""Section: factors other than the method that differ between compared cells."""

from __future__ import annotations

from markupsafe import Markup

from dashboards.contents import Contents
from dashboards.figure import Table, paragraph

_HEADS = {
    "factor": "factor", "among": "among", "cells": "cells", "methods": "methods", "value": "value",
    "usual": "usual value", "benchmarks": "benchmarks",
}  # fmt: skip


def section(contents: Contents) -> Markup:
    """Return a table of the factors that differ, or a sentence if only the method differs.

    Return "" if no cell is done.
    """
    if not contents.run[0]["done"]:
        return Markup()
    if not contents.violations:
        return paragraph("Compared cells differ only in the method.")
    legend = paragraph(
        "Compared cells also differ in these factors. Consider the factors before you attribute a"
        " difference to the method."
    )
    return legend + Table.of(contents.violations, _HEADS).html()
