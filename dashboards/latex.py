"""A study's means as LaTeX tables for a paper, which need only the package booktabs."""

from collections.abc import Iterator
from pathlib import Path

from dashboards.contents import Contents, Row, grouped, read_contents
from dashboards.families import base_context, benchmark_label, comparable, groups, scores_of
from dashboards.report import write_whole
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
    contents = read_contents(catalog, study)
    lines = [f"% {study}: lce report {study} --format latex; needs booktabs"]
    for base in contents.studies:
        of_it = contents.of(base["base_model"])
        means = comparable(of_it.benchmarks, of_it.scores)
        for benchmark, rows in grouped(means, "benchmark").items():
            if any(row["value"] is not None for row in rows):
                lines += _table(of_it, benchmark, rows)
    return write_whole(out, "\n".join(lines) + "\n")


def _table(contents: Contents, benchmark: str, rows: list[Row]) -> Iterator[str]:
    study = contents.studies[0]
    lengths = sorted({row["eval_length"] for row in rows})
    known = next(row for row in rows if row["value"] is not None)
    better = "higher" if known["higher_is_better"] else "lower"
    name = benchmark_label(benchmark)
    key = benchmark.replace("\n", "-").replace("_", "-")
    context = base_context(study)
    scores = {(one, length): it for (one, _, length), it in scores_of(contents, rows).items()}
    legend = _LEGEND if any(one["verdict"] for one in scores.values()) else ""
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
    for group in groups(contents):
        shown = [
            one for one in group.variants if any((one, length) in scores for length in lengths)
        ]
        if shown:
            yield r"    \midrule"
        for one in shown:
            cells = [_cell(scores.get((one, length))) for length in lengths]
            yield f"    {_plain(one.label)} & {' & '.join(cells)} \\\\"
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    yield r"\end{table}"


def _cell(score: Row | None) -> str:
    if score is None:
        return ""
    if score["value"] is None:
        return "--"
    text = formats.score(score["value"])
    text = f"\\textbf{{{text}}}" if score["is_best"] else text
    return text + _MARKS.get(score["verdict"], "")


def _plain(words: str) -> str:
    return words.translate(_ESCAPES)
