"""The table at the end of a run: benchmark results by length, one line per method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.terminal import plain_table
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
"""Query for a single seed with the columns of `LENGTHS`; it marks no value as best."""
_BEST = "*"
_OTHER = "!"


def show_results(plan: StudyPlan, home: Path, console: Console, seed: int | None = None) -> None:
    """Print each benchmark's default metric by length, as a mean over seeds and tasks.

    A mean is shown only if all its planned cells are done. The best value is chosen among these.

    Args:
      plan: the study's plan.
      home: the store whose catalog is read.
      console: console that receives the tables.
      seed: the only seed to show; None for all.
    """
    study = plan.study
    num = len(study.seeds)
    seeds = (
        f"mean over {num} seed{'s'[: num > 1]}" if seed is None else f"seed {seed}, one of {num}"
    )
    console.print(
        f"{study.study}: {seeds}; trained context {', '.join(_contexts(plan))};"
        f" target context {study.target_context}",
        highlight=False,
    )
    lengths: dict[str, set[int]] = {}
    for asked in study.benchmarks:
        lengths.setdefault(asked.benchmark.plugin_name, set()).update(asked.lengths)
    sql = LENGTHS if seed is None else OF_SEED
    blocks = [
        _Block(
            name, sorted(at), read(home, sql.format(study=study.study, benchmark=name, seed=seed))
        )
        for name, at in lengths.items()
    ]
    shown = [block for block in blocks if len(block.lengths) > 1] or blocks
    beside = max(len(_label(entry)) for entry in study.methods) + 2
    if len(study.base_models) > 1:
        beside += max(len(model.known_as) for model in study.base_models) + 2
    for group in _fitting(shown, WIDTH - beside):
        console.print(_table(plan, group))
    for line in _legend(study, blocks, shown):
        console.print(line, highlight=False, style="dim")


class _Block:
    """The table columns of one benchmark."""

    def __init__(
        self, benchmark: str, lengths: Sequence[int], rows: Sequence[tuple[Any, ...]]
    ) -> None:
        self.benchmark, self.lengths = benchmark, lengths
        self.direction = "higher" if BENCHMARKS.load(benchmark).unit == "accuracy" else "lower"
        self.cells: dict[tuple[str, str, bool, int], str] = {}
        """Text by base model, method, frozen and length. A value ends with `_BEST`, `_OTHER` or a
        space; without a value the text is "DONE/PLANNED "."""
        for *row, value, is_best, done, planned, has_usual_tasks in rows:
            model, method, frozen, length = row
            mark = (_BEST if is_best else " ") if has_usual_tasks else _OTHER
            text = f"{done}/{planned} " if value is None else formats.short_score(value) + mark
            self.cells[model, method, frozen, length] = text

    def has(self, mark: str) -> bool:
        """Return True if a cell of the table has this mark."""
        return any(mark in text for text in self.cells.values())

    @property
    def widths(self) -> list[int]:
        """Width of each column in characters, including its mark.

        The first column also fits the benchmark's name.
        """
        widths = []
        for length in self.lengths:
            texts = [text for (*_, at), text in self.cells.items() if at == length]
            widths.append(max(map(len, [f"{length}*", *texts])))
        return [max(widths[0], len(f"{self.benchmark}*")), *widths[1:]]


def _table(plan: StudyPlan, blocks: Sequence[_Block]) -> Table:
    several = len(plan.study.base_models) > 1
    heads = []
    for block in blocks:
        titles = [block.benchmark] + [""] * (len(block.lengths) - 1)
        for title, length, width in zip(titles, block.lengths, block.widths, strict=True):
            heads.append("\n".join(f"{text} ".rjust(width) for text in (title, str(length))))
    names = ("\nbase model ", "\nmethod ")[not several :]
    # Padded by hand, because rich would align numbers with and without a mark differently.
    table = plain_table((*names, *heads), gap=1)
    for model in plan.study.base_models:
        for entry in plan.study.methods:
            key = (model.known_as, entry.label, not entry.is_tuned)
            cells = [
                block.cells.get((*key, length), "- ").rjust(width)
                for block in blocks
                for length, width in zip(block.lengths, block.widths, strict=True)
            ]
            labels = (model.known_as, _label(entry))[not several :]
            table.add_row(
                *(f"{label} " for label in labels),
                *(Text(cell, style="bold" if cell.endswith(_BEST) else "") for cell in cells),
            )
    return table


def _legend(study: StudySpec, blocks: Sequence[_Block], shown: Sequence[_Block]) -> list[str]:
    lines = []
    name = study.study
    if others := ", ".join(block.benchmark for block in blocks if block not in shown):
        lines.append(f"at one length, see `lce report {name}`: {others}")
    for direction in ("lower", "higher"):
        names = ", ".join(block.benchmark for block in shown if block.direction == direction)
        lines += [f"{direction} is better: {names}"] * bool(names)
    if any(block.has(_BEST) for block in shown):
        lines.append("*: best of the column, among methods whose cells are all done.")
    if any(block.has(_OTHER) for block in shown):
        lines.append(
            f"{_OTHER}: a mean over other tasks than most of its column, not to be compared."
            f" Task by task:\n  lce report {name} --format md"
        )
    if any(block.has("/") for block in shown):
        lines.append(
            "2/3: two of three cells are done, so there is no mean. Which are not, and why:\n"
            f"  lce sql \"FROM missing_cells WHERE study = '{name}'\""
        )
    lines.append("tuned: fine-tuned at the target context, else frozen. ~: approximate attention.")
    lines += [f"{_label(variant)}: {own}" for variant in study.methods if (own := _own(variant))]
    return lines


def _label(entry: MethodEntry) -> str:
    label = variant_label(entry.label, not entry.is_tuned)
    return label if entry.method.exact_attention else f"{label} ~"


def _own(variant: MethodEntry) -> str:
    """Describe a variant's target context and row length if it sets its own; else empty."""
    said = {"extended to": variant.target_context, "trained on rows of": variant.train_length}
    return ", ".join(f"{what} {tokens} tokens" for what, tokens in said.items() if tokens)


def _fitting(blocks: Sequence[_Block], width: int) -> list[list[_Block]]:
    """Group consecutive blocks so that each group's columns fit `width` characters."""
    groups: list[list[_Block]] = []
    for block in blocks:
        room = width - sum(_room(other) for other in groups[-1]) if groups else 0
        if _room(block) <= room:
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _room(block: _Block) -> int:
    return sum(width + 1 for width in block.widths)


def _contexts(plan: StudyPlan) -> list[str]:
    several = len(plan.study.base_models) > 1
    return [
        f"{m.geometry.trained_context}{f' ({m.known_as})' if several else ''}"
        for m in plan.study.base_models
        if m.is_known
    ]
