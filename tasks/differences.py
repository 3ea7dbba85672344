"""Compare the scores of two homes, cell by cell, for `lce diff` and `Results.diff`."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog.formatting import format_rows
from catalog.queries import run_query
from lce_core.errors import SpecError, did_you_mean
from tasks.mending import mended

AXES = ("study", "base_model", "variant", "seed", "benchmark", "task", "eval_length", "metric")
COLUMNS = (*AXES, "a", "b", "difference", "same_id")
"""A score of one side only has no difference and no `same_id`."""
CELLS = ("cell_a", "cell_b")
MOST_ROWS = 10
"""Rows that fit a screen."""
SCORES = f"SELECT {', '.join(AXES)}, cell, value FROM scores"

Rows = list[tuple[Any, ...]]
Scores = dict[tuple[Any, ...], tuple[str, float]]
"""Cell id and value by axes and a number: a study may have a benchmark twice."""


@dataclass(frozen=True)
class Differences:
    """The scores of two homes that differ, and how many do not."""

    num_equal: int
    rows: list[tuple[Any, ...]]
    """Rows of `COLUMNS` and `CELLS`: first scores with two values, then scores of one side."""

    def json(self) -> str:
        return format_rows((*COLUMNS, *CELLS), self.rows, "json")

    def text(self, *, everything: bool) -> str:
        lines = []
        if self.rows:
            shown = self.rows if everything else self.rows[:MOST_ROWS]
            lines.append(format_rows(COLUMNS, [row[: len(COLUMNS)] for row in shown], "table"))
            if more := len(self.rows) - len(shown):
                lines.append(f"... and {more:,} more; print all with --all")
            lines.append("")
        same_ids = [row[COLUMNS.index("same_id")] for row in self.rows]
        different = len(self.rows) - same_ids.count(None)
        cells_a, cells_b = ([row[-2] for row in self.rows], [row[-1] for row in self.rows])
        return "\n".join(
            [
                *lines,
                f"{self.num_equal + different:,} scores in both: {self.num_equal:,} equal,"
                f" {different:,} different ({same_ids.count(True):,} with the same cell id)",
                f"{cells_b.count(None):,} only in a, {cells_a.count(None):,} only in b",
            ]
        )


def compare(first: Rows, second: Rows, study: str | None) -> Differences:
    a, b = _by_axes(first), _by_axes(second)
    known = {axes[0] for axes in (*a, *b)}
    if not known:
        raise SpecError(
            "lce diff",
            "two homes without a score",
            "homes with finished cells",
            "run a study with `lce run`",
        )
    if study is not None and study not in known:
        raise SpecError(
            "--study",
            f"{study!r}, of which neither home has a score",
            "a study with finished cells",
            did_you_mean(study, known),
        )
    a, b = ({axes: s for axes, s in side.items() if study in (None, axes[0])} for side in (a, b))
    rows: list[tuple[Any, ...]] = []
    for axes in (axes for axes in a if axes in b):
        (cell, value), (other_cell, other) = a[axes], b[axes]
        if value != other:
            same_id = cell == other_cell
            rows.append((*axes[:-1], value, other, other - value, same_id, cell, other_cell))
    num_equal = len(a.keys() & b.keys()) - len(rows)
    for axes, (cell, value) in a.items():
        if axes not in b:
            rows.append((*axes[:-1], value, None, None, None, cell, None))
    for axes, (cell, value) in b.items():
        if axes not in a:
            rows.append((*axes[:-1], None, value, None, None, None, cell))
    return Differences(num_equal, rows)


def scores_of(home: Path) -> Rows:
    return run_query(mended(home.absolute()) if home.is_dir() else home, SCORES)[1]


def _by_axes(rows: Rows) -> Scores:
    found: Scores = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    for *named, cell, value in rows:
        axes = tuple(named)
        found[*axes, seen[axes]] = (cell, value)
        seen[axes] += 1
    return found
