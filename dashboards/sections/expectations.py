"""Section: the study's expectations with their outcomes, and the named methods compared."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dashboards.claims import Expectation, counted
from dashboards.claims.wording import CORRELATION, OUTCOMES
from dashboards.contents import Contents
from dashboards.families import Variant
from dashboards.figure import names_as_code
from dashboards.sections import named


def section(contents: Contents, expected: Sequence[Expectation]) -> str:
    """Return the list of expectations and the tables of `named` as HTML; "" if both are empty.

    Args:
      contents: rows of one base model.
      expected: expectations for this base model.
    """
    variants = [Variant.of(row) for row in contents.overview]
    entries = "".join(_entry(one, variants) for one in expected)
    listed = f'<p>{escape(caption(contents, expected))}</p><dl class="answers">{entries}</dl>'
    return (listed if expected else "") + named.section(contents)


def caption(contents: Contents, expected: Sequence[Expectation]) -> str:
    """Return the number of comparisons by outcome, and what the outcomes mean."""
    predicts = any(row["expected"] == "predicts" for row in contents.expectations)
    note = f" {CORRELATION}" if predicts else ""
    return f"Comparisons: {counted(expected)}. {OUTCOMES}{note}"


def _entry(entry: Expectation, variants: Sequence[Variant]) -> str:
    found = "".join(
        f"<li><b>{one.outcome}</b>: {names_as_code(one.finding, variants)}</li>"
        for one in entry.comparisons
    )
    return f"<dt>{escape(entry.text)} ({entry.summary})</dt><dd><ul>{found}</ul></dd>"
