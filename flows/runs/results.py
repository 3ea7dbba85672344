"""Print the results table of a run: benchmark results by length, one line per method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.terminal import plain_table
from lce_core import formats
from lce_core.benchmarks import BENCHMARKS
from lce_core.models import LanguageModel
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


def show_results(plan: StudyPlan, home: Path, console: Console, seed: int | None = None) -> None:
    """Print each benchmark's default metric by length, as a mean over seeds and tasks.

    A mean is shown only if all its planned cells are done. The best mean of a column is marked.
    `seed` shows only that seed.
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
    label_width = max(len(_label(entry)) for entry in study.methods) + 2
    if len(study.base_models) > 1:
        label_width += max(len(model.known_as) for model in study.base_models) + 2
    for group in _fitting(shown, WIDTH - label_width):
        console.print(_table(plan, group))
    for line in _legend(study, found, shown):
        console.print(line, highlight=False, style="dim")
    for line in _unavailable(read(home, UNAVAILABLE.format(study=study.study))):
        console.print(line, highlight=False)


def _unavailable(found: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    for reason, number, benchmarks in found[:_MOST_REASONS]:
        yield f"unavailable: {number:,} cells of {benchmarks}: {reason}"
    if len(found) > _MOST_REASONS:
        yield f"unavailable: more cells, for {len(found) - _MOST_REASONS} other reasons"


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

    @property
    def widths(self) -> list[int]:
        """Column widths in characters, with marks; the first fits the benchmark's name."""
        widths = []
        for length in self.lengths:
            texts = [text for (*_, at), text in self.cells.items() if at == length]
            widths.append(max(map(len, [f"{length}*", *texts])))
        return [max(widths[0], len(f"{self.benchmark}*")), *widths[1:]]


def _table(plan: StudyPlan, benchmarks: Sequence[_Columns]) -> Table:
    several = len(plan.study.base_models) > 1
    heads = []
    for columns in benchmarks:
        titles = [columns.benchmark] + [""] * (len(columns.lengths) - 1)
        for title, length, width in zip(titles, columns.lengths, columns.widths, strict=True):
            heads.append("\n".join(f"{text} ".rjust(width) for text in (title, str(length))))
    names = ("\nbase model ", "\nmethod ")[not several :]
    # `rjust` pads the texts, because rich would align numbers with and without a mark differently.
    table = plain_table((*names, *heads), gap=1)
    for model in plan.study.base_models:
        for entry in plan.study.methods:
            key = (model.known_as, entry.label, not entry.is_tuned)
            cells = [
                columns.cells.get((*key, length), "- ").rjust(width)
                for columns in benchmarks
                for length, width in zip(columns.lengths, columns.widths, strict=True)
            ]
            labels = (model.known_as, _label(entry))[not several :]
            table.add_row(
                *(f"{label} " for label in labels),
                *(Text(cell, style="bold" if cell.endswith(_BEST) else "") for cell in cells),
            )
    return table


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
        if settings := _own_settings(study, entry):
            lines.append(f"{_label(entry)}: {settings}")
    return lines


def _label(entry: MethodEntry) -> str:
    label = variant_label(entry.label, not entry.is_tuned)
    return label if entry.method.exact_attention else f"{label} ~"


def _own_settings(study: StudySpec, entry: MethodEntry) -> str:
    lengths = {"extended to": entry.target_context, "trained on rows of": entry.train_length}
    parts = [f"{what} {tokens} tokens" for what, tokens in lengths.items() if tokens]
    if source := study.weights_source_of(entry):
        parts.insert(0, f"weights of {_label(source)}")
    return ", ".join(parts)


def _fitting(benchmarks: Sequence[_Columns], width: int) -> list[list[_Columns]]:
    groups: list[list[_Columns]] = []
    for columns in benchmarks:
        free = width - sum(_total_width(other) for other in groups[-1]) if groups else 0
        if _total_width(columns) <= free:
            groups[-1].append(columns)
        else:
            groups.append([columns])
    return groups


def _total_width(columns: _Columns) -> int:
    return sum(width + 1 for width in columns.widths)


def _notes(model: LanguageModel, several: bool) -> str:
    return ", ".join(text for text in (model.known_as if several else None, model.note) if text)


def _contexts(plan: StudyPlan) -> list[str]:
    several = len(plan.study.base_models) > 1
    return [
        f"{m.geometry.trained_context}{f' ({notes})' if (notes := _notes(m, several)) else ''}"
        for m in plan.study.base_models
        if m.is_known
    ]
