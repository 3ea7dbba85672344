"""A study's means as LaTeX tables for a paper: one table per base model and benchmark.

The tables need only the LaTeX package booktabs. Rows are methods and columns are lengths. A
benchmark whose methods have different tasks gets one table per task. The best value of a column is
bold, a significant difference from the base model has a mark, and a dash replaces a mean with
missing cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from dashboards.comparable import base_context, benchmark_label, comparable
from dashboards.contents import Contents, Row, read_contents, select
from dashboards.families import Variant, controls, families
from dashboards.marks import Place, place, verdicts
from dashboards.writing import write_whole
from lce_core import formats

_MARKS = {"better": "$^{+}$", "worse": "$^{-}$"}
_LEGEND = (
    " $^{+}$ better, $^{-}$ worse than the base model on the same prompts by a paired test,"
    r" $p \leq 0.05$."
)
_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    }
)


def write_latex(catalog: Path, study: str, out: Path) -> Path:
    """Write the tables of one study into one file and return its path.

    Args:
      catalog: Path of the catalog.
      study: Name of a study in the catalog.
      out: The `.tex` file to write, to be included in a document; its folder is created if missing.

    Raises:
      SpecError: if the catalog or the study does not exist, or the file cannot be written.
    """
    contents = read_contents(catalog, study)
    lines = [f"% {study}: lce report {study} --format latex; needs booktabs"]
    for row in contents.studies:
        lines += _tables(contents.of(row["base_model"]))
    return write_whole(out, "\n".join(lines) + "\n")


def _tables(contents: Contents) -> Iterator[str]:
    rows = comparable(contents.benchmarks, contents.scores)
    for benchmark in dict.fromkeys(row["benchmark"] for row in rows):
        found = select(rows, benchmark=benchmark)
        if any(row["value"] is not None for row in found):
            yield from _table(contents, benchmark, found)


def _table(contents: Contents, benchmark: str, rows: list[Row]) -> Iterator[str]:
    study = contents.studies[0]
    lengths = sorted({row["eval_length"] for row in rows})
    known = next(row for row in rows if row["value"] is not None)
    better = "higher" if known["higher_is_better"] else "lower"
    name = benchmark_label(benchmark)
    key = benchmark.replace("\n", "-").replace("_", "-")
    context = base_context(study)
    sure = _sure(contents, rows)
    legend = _LEGEND if sure else ""
    trained = f", {_plain(context)}" if context else ""
    yield ""
    yield r"\begin{table}"
    yield r"  \centering"
    yield (
        f"  \\caption{{{_plain(name)} of {_plain(study['base_model'])}{trained},"
        f" by length in tokens; {better} is better.{legend}}}"
    )
    yield f"  \\label{{tab:{contents.study}-{study['base_model']}-{key}}}"
    yield f"  \\begin{{tabular}}{{l{'r' * len(lengths)}}}"
    yield r"    \toprule"
    yield f"    method & {' & '.join(f'{length:,}' for length in lengths)} \\\\"
    for members in (controls(contents), *(family.variants for family in families(contents))):
        shown = [one for one in members if any(Variant.of(row) == one for row in rows)]
        if shown:
            yield r"    \midrule"
        for one in shown:
            cells = [_cell(rows, one, length, sure) for length in lengths]
            yield f"    {_plain(one.label)} & {' & '.join(cells)} \\\\"
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield r"\end{table}"


def _cell(rows: list[Row], one: Variant, length: int, sure: Mapping[Place, str]) -> str:
    found = select(rows, method=one.method, frozen=one.frozen, eval_length=length)
    if not found:
        return ""
    (row,) = found
    if row["value"] is None:
        return "--"
    text = formats.score(row["value"])
    text = f"\\textbf{{{text}}}" if row["is_best"] else text
    return text + _MARKS.get(sure.get(place(row), ""), "")


def _sure(contents: Contents, rows: list[Row]) -> dict[Place, str]:
    """Return "better" or "worse" for each row that differs significantly from the base model.

    The keys are the rows' `dashboards.marks.place`. If a benchmark has only one task, the verdict
    on that task also applies to its mean.
    """
    found = verdicts(contents)
    placed = {}
    for row in rows:
        benchmark = row["benchmark"].split("\n")[0]  # `comparable` appends the task after a newline
        tasks = {one["task"] for one in select(contents.scores, benchmark=benchmark)}
        task = row.get("task") or (tasks.pop() if len(tasks) == 1 else None)
        verdict = found.get(place({**row, "benchmark": benchmark, "task": task}))
        if verdict and row["value"] is not None:
            placed[place(row)] = verdict
    return placed


def _plain(words: str) -> str:
    return words.translate(_ESCAPES)
