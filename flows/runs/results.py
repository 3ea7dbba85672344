"""Print the results table of a run: benchmark results by length, one line per method."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from flows.terminal import titled_grids
from lce_core import formats
from lce_core.benchmarks import BENCHMARKS
from lce_core.study.plan import StudyPlan
from lce_core.study.spec import MethodEntry, StudySpec
from lce_core.study.variants import variant_label
from lce_core.terminal import WIDTH
from tasks.questions import read

LENGTHS = (
    "SELECT base_model, method, frozen, eval_length, value, is_best, num_done, num_planned,"
    " has_usual_tasks"
    " FROM benchmark_by_length WHERE study = '{study}' AND benchmark = '{benchmark}'"
)
OF_SEED = (
    "WITH means AS (SELECT base_model, method, frozen, eval_length, avg(value) AS value,"
    " count(value) AS done, count(*) AS planned, list(task ORDER BY task) AS tasks"
    " FROM store.part WHERE study = '{study}' AND benchmark = '{benchmark}' AND seed = {seed}"
    " GROUP BY ALL)"
    " SELECT base_model, method, frozen, eval_length, if_complete(value, done, planned),"
    " false, done, planned, tasks = mode(tasks) OVER (PARTITION BY base_model, eval_length)"
    " FROM means"
)
"""Query for one seed, with the columns of `LENGTHS`; is_best is always false."""
UNAVAILABLE = (
    "SELECT reason, count(*), string_agg(DISTINCT benchmark, ', ' ORDER BY benchmark)"
    " FROM missing_cells WHERE study = '{study}' AND status = 'unavailable'"
    " GROUP BY reason ORDER BY count(*) DESC, reason"
)
_MOST_REASONS = 5
_BEST = "*"
_OTHER_TASKS = "!"

Row = tuple[str, str, bool]
"""Base model, method and whether the weights are frozen."""


def show_results(plan: StudyPlan, home: Path, console: Console, seed: int | None = None) -> None:
    """Print each benchmark's default metric by length, as a mean over seeds (or of one `seed`).

    A mean is shown only if all its planned cells are done. The best mean of a column is marked.
    """
    study = plan.study
    num = len(study.seeds)
    seeds = f"mean over {num} seed{'s'[: num > 1]}"
    if seed is not None:
        seeds = f"seed {seed}, one of {num}"
    console.print(
        f"{study.study}: {seeds}; trained context {', '.join(_contexts(plan))};"
        f" target context {study.target_context}",
        highlight=False,
    )
    lengths: dict[str, set[int]] = {}
    for entry in study.benchmarks:
        lengths.setdefault(entry.benchmark.plugin_name, set()).update(entry.lengths)
    sql = LENGTHS if seed is None else OF_SEED
    found = []
    for name, evaluated in lengths.items():
        rows = read(home, sql.format(study=study.study, benchmark=name, seed=seed))
        found.append(_Columns(name, sorted(evaluated), rows))
    shown = [columns for columns in found if len(columns.lengths) > 1] or found
    for lines in titled_grids(*_grid(plan, shown), WIDTH):
        for number, line in enumerate(lines):
            text = Text(line, style="bold" * (number < 2))
            text.highlight_regex(r"\S+\*", "bold")
            console.print(text, soft_wrap=True)
    for line in _legend(study, found, shown):
        console.print(line, highlight=False, style="dim")
    reasons = read(home, UNAVAILABLE.format(study=study.study))
    for reason, number, benchmarks in reasons[:_MOST_REASONS]:
        line = f"unavailable: {number:,} cells of {benchmarks}: {reason}"
        console.print(line, highlight=False)
    if (others := len(reasons) - _MOST_REASONS) > 0:
        line = f"unavailable: more cells, for {others} other reasons"
        console.print(line, highlight=False)


class _Columns:
    def __init__(
        self, benchmark: str, lengths: Sequence[int], rows: Sequence[tuple[Any, ...]]
    ) -> None:
        self.benchmark, self.lengths = benchmark, lengths
        self.direction = "higher" if BENCHMARKS.load(benchmark).unit == "accuracy" else "lower"
        self.cells: dict[tuple[str, str, bool, int], str] = {}
        """Text of each cell by base model, method, frozen and length: a mean, followed by `_BEST`,
        `_OTHER_TASKS` or a space; without a mean "DONE/PLANNED "."""
        for *row, value, is_best, done, planned, has_usual_tasks in rows:
            model, method, frozen, length = row
            mark = (_BEST if is_best else " ") if has_usual_tasks else _OTHER_TASKS
            text = f"{done}/{planned} " if value is None else formats.short_score(value) + mark
            self.cells[model, method, frozen, length] = text

    def has(self, mark: str) -> bool:
        return any(mark in text for text in self.cells.values())

    def block(self, rows: Sequence[Row]) -> tuple[str, list[list[str]]]:
        """Return title and columns for `titled_grids`."""
        title, columns = f"{self.benchmark} ", list[list[str]]()
        for length in self.lengths:
            texts = [f"{length} ", *(self.cells.get((*row, length), "- ") for row in rows)]
            width = max(map(len, texts if columns else [title, *texts]))
            columns.append([f"{text:>{width}} " for text in texts])
        return title.rjust(len(columns[0][0]) - 1), columns


def _grid(
    plan: StudyPlan, benchmarks: Sequence[_Columns]
) -> tuple[list[str], list[tuple[str, list[list[str]]]]]:
    variants = list(product(plan.study.base_models, plan.study.methods))
    names = [("base model", "method"), *((model.known_as, _label(one)) for model, one in variants)]
    texts = list(zip(*names, strict=True))[len(plan.study.base_models) == 1 :]
    padded = ([text.ljust(max(map(len, column)) + 2) for text in column] for column in texts)
    labels = ["".join(row) for row in zip(*padded, strict=True)]
    rows = [(model.known_as, one.label, not one.is_tuned) for model, one in variants]
    return labels, [columns.block(rows) for columns in benchmarks]


def _legend(study: StudySpec, found: Sequence[_Columns], shown: Sequence[_Columns]) -> list[str]:
    lines = []
    name = study.study
    if others := ", ".join(columns.benchmark for columns in found if columns not in shown):
        lines.append(f"evaluated at one length only (see `lce report {name}`): {others}")
    for direction in ("lower", "higher"):
        names = ", ".join(columns.benchmark for columns in shown if columns.direction == direction)
        lines += [f"{direction} is better: {names}"] * bool(names)
    if any(columns.has(_BEST) for columns in shown):
        lines.append("*: best of the column, among methods whose cells are all done.")
    if any(columns.has(_OTHER_TASKS) for columns in shown):
        lines.append(
            f"{_OTHER_TASKS}: a mean over other tasks or seeds than most of the column; do not"
            f" compare it. Scores by task:\n  lce report {name} --format md"
        )
    if any(columns.has("/") for columns in shown):
        lines.append(
            "2/3: two of three cells are done, so there is no mean. The other cells and why:\n"
            f"  lce sql \"FROM missing_cells WHERE study = '{name}'\""
        )
    lines.append("tuned: fine-tuned at the target context. Others: frozen.")
    lines.append("~: approximate attention.")
    for entry in study.methods:
        lengths = {"extended to": entry.target_context, "trained on rows of": entry.train_length}
        settings = [f"{what} {tokens} tokens" for what, tokens in lengths.items() if tokens]
        if source := study.weights_source_of(entry):
            settings.insert(0, f"weights of {_label(source)}")
        if settings:
            lines.append(f"{_label(entry)}: {', '.join(settings)}")
    return lines


def _label(entry: MethodEntry) -> str:
    label = variant_label(entry.label, not entry.is_tuned)
    return label if entry.method.exact_attention else f"{label} ~"


def _contexts(plan: StudyPlan) -> Iterator[str]:
    several = len(plan.study.base_models) > 1
    for model in plan.study.base_models:
        notes = ", ".join(filter(None, (model.known_as * several, model.note)))
        if model.is_known:
            yield f"{model.geometry.trained_context}{f' ({notes})' if notes else ''}"
