"""The table that a run ends with: every benchmark against length, one line a method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lce_core.benchmarks import BENCHMARKS
from lce_core.study.plan import StudyPlan
from lce_core.study.spec import MethodEntry
from tasks.projections import read

LENGTHS = (
    "SELECT base_model, method, frozen, eval_length, avg(value) AS value FROM scores"
    " WHERE study = '{study}' AND benchmark = '{benchmark}' AND metric = '{metric}'"
    " GROUP BY ALL"
)
WIDTH = 80
"""Columns every terminal has; wider tables are split by benchmark."""


def show_results(plan: StudyPlan, home: Path, console: Console) -> None:
    """Prints the default metric of each benchmark against length, mean over seeds and tasks."""
    study = plan.study
    seeds = len(study.seeds)
    console.print(
        f"{study.study}: mean over {seeds} seed{'s'[: seeds > 1]}; trained context"
        f" {', '.join(_contexts(plan))}; target context {study.target_context}",
        highlight=False,
    )
    blocks = [_Block(entry.benchmark.plugin_name, entry.lengths) for entry in study.benchmarks]
    shown = [block for block in blocks if len(block.lengths) > 1] or blocks
    beside = max(len(_label(entry)) for entry in study.methods) + 2
    if len(study.base_models) > 1:
        beside += max(len(model.plugin_name) for model in study.base_models) + 2
    for group in _fitting(shown, WIDTH - beside):
        console.print(_table(plan, home, group))
    if others := ", ".join(block.benchmark for block in blocks if block not in shown):
        line = f"at one length, see `lce report {study.study}`: {others}"
        console.print(line, highlight=False, style="dim")
    for direction in ("lower", "higher"):
        names = ", ".join(block.benchmark for block in shown if block.direction == direction)
        if names:
            console.print(f"{direction} is better: {names}", highlight=False, style="dim")
    legend = "tuned: fine-tuned at the target context, else frozen. ~: approximate attention."
    console.print(legend, highlight=False, style="dim")


class _Block:
    """The columns of one benchmark."""

    def __init__(self, benchmark: str, lengths: Sequence[int]) -> None:
        self.benchmark, self.lengths = benchmark, sorted(lengths)
        plugin = BENCHMARKS.load(benchmark)
        self.metric = plugin.default_metric
        self.direction = "higher" if plugin.unit == "accuracy" else "lower"

    @property
    def width(self) -> int:
        digits = 4 if self.direction == "higher" else 5
        first, *others = (max(len(str(length)), digits) + 2 for length in self.lengths)
        return max(first, len(self.benchmark) + 2) + sum(others)

    def values(self, home: Path, study: str) -> dict[tuple[str, str, bool, int], float]:
        sql = LENGTHS.format(study=study, benchmark=self.benchmark, metric=self.metric)
        return {(model, method, frozen, n): v for model, method, frozen, n, v in read(home, sql)}


def _table(plan: StudyPlan, home: Path, blocks: Sequence[_Block]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    several = len(plan.study.base_models) > 1
    for column in (("base model",) if several else ()) + ("\nmethod",):
        table.add_column(column, no_wrap=True)
    values = []
    for block in blocks:
        values.append(block.values(home, plan.study.study))
        for index, length in enumerate(block.lengths):
            title = block.benchmark if index == 0 else ""
            header = Text(f"{title}\n{length}", justify="right")
            table.add_column(header, justify="right", no_wrap=True)
    for model in plan.study.base_models:
        for entry in plan.study.methods:
            key = (model.plugin_name, entry.label, not entry.tuned)
            cells = [
                _number(found.get((*key, length)))
                for block, found in zip(blocks, values, strict=True)
                for length in block.lengths
            ]
            table.add_row(*([model.plugin_name] if several else []), _label(entry), *cells)
    return table


def _label(entry: MethodEntry) -> str:
    return f"{entry.label}{' tuned' * entry.tuned}{' ~' * (not entry.method.exact_attention)}"


def _fitting(blocks: Sequence[_Block], width: int) -> list[list[_Block]]:
    """Blocks in groups that fit a width."""
    groups: list[list[_Block]] = []
    for block in blocks:
        room = width - sum(other.width for other in groups[-1]) if groups else 0
        if block.width <= room:
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _contexts(plan: StudyPlan) -> list[str]:
    several = len(plan.study.base_models) > 1
    return [
        f"{m.geometry.trained_context}{f' ({m.plugin_name})' if several else ''}"
        for m in plan.study.base_models
    ]


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"
