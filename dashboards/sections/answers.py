"""Section: a few answers of each benchmark, right and wrong ones."""

from __future__ import annotations

from html import escape

from dashboards.contents import Contents, Row, select
from dashboards.families import Variant
from dashboards.figure import code, heads, row_head, scrollable
from lce_core.terminal import visible

TITLE = "Sample answers"
MOST_CHARACTERS = 300
"""Longer answers and references are cut."""
_HEADS = ("method", "task", "score", "answer", "reference", "prompt")


def section(contents: Contents) -> str:
    """Return a table of at most five answers for each benchmark; "" if no prompt was answered.

    Args:
      contents: rows of one base model.
    """
    tables = []
    for benchmark in dict.fromkeys(row["benchmark"] for row in contents.sample_answers):
        rows = select(contents.sample_answers, benchmark=benchmark)
        title = f"{benchmark.replace('_', ' ')}, {rows[0]['eval_length']:,} tokens"
        body = "".join(map(_row, rows))
        table = scrollable(heads(*_HEADS), body, "samples")
        tables.append(f"<h3>{escape(title)}</h3>{table}")
    if not tables:
        return ""
    return (
        "<p>At most five answers per benchmark: wrong ones and right ones alternate, from different"
        " methods if possible. The last column is the command that prints the prompt.</p>"
        f"{''.join(tables)}"
    )


def _row(row: Row) -> str:
    command = code(f"lce prompt {row['cell']} {row['sample']}")
    return (
        f"<tr>{row_head(Variant.of(row), {})}<td>{escape(row['task'].replace('_', ' '))}</td>"
        f'<td class="number" data-value="{row["score"]!r}">{row["score"]:.3g}</td>'
        f"<td>{_cut(row['prediction'])}</td><td>{_cut(row['reference'] or '')}</td>"
        f"<td>{command}</td></tr>"
    )


def _cut(text: str) -> str:
    shown = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
    return code(visible(shown))
