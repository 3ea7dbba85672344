"""Section: a few answers of each benchmark, right and wrong ones."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from dashboards.contents import Contents, Row, select
from dashboards.families import Variant
from dashboards.figure import Cell, Table, Value, code, link, paragraph
from lce_core.terminal import visible

TITLE = "Sample answers"
MOST_CHARACTERS = 300
"""Longer answers and references are cut."""
_LEGEND = paragraph(
    "At most five answers per benchmark: wrong ones and right ones alternate, from different"
    " methods if possible. The last column has the end of the prompt, and the command that prints"
    " the whole prompt."
)
_HEADS = ("method", "task", "score", "answer", "reference", "prompt")


def section(contents: Contents) -> Markup:
    """Return a table of at most five answers for each benchmark; "" if no prompt was answered."""
    shown = Markup()
    for benchmark in dict.fromkeys(row["benchmark"] for row in contents.sample_answers):
        rows = select(contents.sample_answers, benchmark=benchmark)
        title = f"{benchmark.replace('_', ' ')}, {rows[0]['eval_length']:,} tokens"
        heading = Markup('<h3 id="{}">{}</h3>').format(anchor_of(contents, benchmark), title)
        shown += heading + Table(_HEADS, list(map(_row, rows)), kind="samples").html()
    return shown and _LEGEND + shown


def anchor_of(contents: Contents, benchmark: str) -> str:
    """Return the HTML id of the heading above a benchmark's answers."""
    return f"answers-{contents.studies[0]['base_model']}-{benchmark}"


def links(contents: Contents, benchmarks: Iterable[str]) -> Markup:
    """Return a sentence as HTML that links to the answers of those benchmarks that have any."""
    known = {row["benchmark"] for row in contents.sample_answers}
    found = Markup(", ").join(
        link(f"#{anchor_of(contents, one)}", one.replace("_", " "))
        for one in benchmarks
        if one in known
    )
    return found and Markup(" {}: {}.").format(TITLE, found)


def _row(row: Row) -> list[Value]:
    prompt = code(f"lce prompt {row['cell']} {row['sample']}")
    if end := row["prompt_end"]:
        prompt = code(visible(f"...{end}")) + Markup("<br>") + prompt
    return [
        Variant.of(row),
        row["task"].replace("_", " "),
        Cell(f"{row['score']:.3g}", {"class": "number", "data-value": repr(row["score"])}),
        _cut(row["prediction"]),
        _cut(row["reference"] or ""),
        prompt,
    ]


def _cut(text: str) -> Markup:
    shown = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
    return code(visible(shown))
