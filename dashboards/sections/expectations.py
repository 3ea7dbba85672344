"""Section: the study's expectations, each with the outcomes of its comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dashboards.claims import Expectation, counted
from dashboards.claims.wording import OUTCOMES


def section(expected: Sequence[Expectation]) -> str:
    """Return the list of expectations and outcomes as HTML; "" if the study has none.

    Args:
      expected: expectations for one base model.
    """
    if not expected:
        return ""
    return (
        f"<p>Comparisons: {counted(expected)}. {escape(OUTCOMES)}</p>"
        f'<dl class="answers">{"".join(map(_entry, expected))}</dl>'
    )


def _entry(entry: Expectation) -> str:
    found = "".join(
        f"<li><b>{one.outcome}</b>: {escape(one.finding)}</li>" for one in entry.comparisons
    )
    return f"<dt>{escape(entry.text)} ({entry.summary})</dt><dd><ul>{found}</ul></dd>"
