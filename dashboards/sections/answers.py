"""Section: a few answers of each benchmark, right and wrong ones."""

from __future__ import annotations

from collections.abc import Iterable
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
        anchor = anchor_of(contents, benchmark)
        tables.append(f'<h3 id="{escape(anchor)}">{escape(title)}</h3>{table}')
    if not tables:
        return ""
    return (
        "<p>At most five answers per benchmark: wrong ones and right ones alternate, from different"
        " methods if possible. The last column has the end of the prompt, unless an earlier version"
        " computed the answer, and the command that prints the whole prompt.</p>"
        f"{''.join(tables)}"
    )


def anchor_of(contents: Contents, benchmark: str) -> str:
    """Return the HTML id of the heading above a benchmark's answers.

    Args:
      contents: rows of one base model.
      benchmark: name of the benchmark.
    """
    return f"answers-{contents.studies[0]['base_model']}-{benchmark}"


def links(contents: Contents, benchmarks: Iterable[str]) -> str:
    """Return a sentence as HTML that links to the answers of these benchmarks; "" without any.

    Args:
      contents: rows of one base model.
      benchmarks: names of benchmarks; those without answers are left out.
    """
    known = {row["benchmark"] for row in contents.sample_answers}
    found = ", ".join(
        f'<a href="#{escape(anchor_of(contents, one))}">{escape(one.replace("_", " "))}</a>'
        for one in benchmarks
        if one in known
    )
    return found and f" {TITLE}: {found}."


def _row(row: Row) -> str:
    prompt = code(f"lce prompt {row['cell']} {row['sample']}")
    if end := row["prompt_end"]:
        prompt = f"{code(visible(f'...{end}'))}<br>{prompt}"
    return (
        f"<tr>{row_head(Variant.of(row), {})}<td>{escape(row['task'].replace('_', ' '))}</td>"
        f'<td class="number" data-value="{row["score"]!r}">{row["score"]:.3g}</td>'
        f"<td>{_cut(row['prediction'])}</td><td>{_cut(row['reference'] or '')}</td>"
        f"<td>{prompt}</td></tr>"
    )


def _cut(text: str) -> str:
    shown = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
    return code(visible(shown))
