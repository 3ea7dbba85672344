"""Scores in all report formats: which are comparable, the best, significant, or have holes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.contents import Contents, Row, select
from dashboards.families import Variant

MARKS = {"better": "\u25b2", "worse": "\u25bc"}
"""Character shown after a score that is better or worse than the base model's."""
LEGEND = (
    f"{MARKS['better']} better, {MARKS['worse']} worse than the base model on the same prompts, by"
    " a paired test: p or q up to 0.05. No mark: undecided, the same, or too few prompts."
)
_PLACE = ("base_model", "method", "frozen", "benchmark", "task", "eval_length")

Place = tuple[Variant, str | None, int]
"""Variant, task (None in a mean over tasks) and length in tokens of a score."""


@dataclass(frozen=True)
class Score:
    """A mean over the planned seeds of a method at one length."""

    row: Row
    """Row of the view score_by_length or benchmark_by_length."""
    value: float | None
    """The value is None unless all planned cells are done."""
    is_best: bool
    """True if the value is the best of its column."""
    verdict: str | None
    """"better" or "worse" if the value differs significantly from the base model's on the same
    prompts (view `paired_difference`)."""

    @property
    def hole(self) -> str:
        """Number of seeds that are done, to show without a value."""
        return f"{self.row['num_seeds']} of {self.row['num_planned']} seeds"


def scores_of(contents: Contents, rows: Sequence[Row]) -> dict[Place, Score]:
    """Return the scores of one benchmark.

    Args:
      rows: rows from `comparable`, or rows by task of the view score_by_length.
    """
    verdicts = {tuple(row[name] for name in _PLACE): row["verdict"] for row in contents.differences}
    found = {}
    for row in rows:
        benchmark = row["benchmark"].split("\n")[0]  # `comparable` appends the task after a newline
        tasks = {one["task"] for one in select(contents.scores, benchmark=benchmark)}
        # The verdict on the only task of a benchmark also applies to its mean.
        task = row.get("task") or (tasks.pop() if len(tasks) == 1 else None)
        compared = {**row, "benchmark": benchmark, "task": task}
        verdict = verdicts.get(tuple(compared[name] for name in _PLACE))
        best = row["is_best"] if "is_best" in row else is_best(row, rows)
        found[Variant.of(row), row.get("task"), row["eval_length"]] = Score(
            row, row["value"], best, None if row["value"] is None else verdict
        )
    return found


def comparable(benchmarks: Sequence[Row], scores: Sequence[Row]) -> list[Row]:
    """Return the means of each benchmark, or its scores by task if methods have different tasks.

    A mean over code and books cannot be compared with a mean over code alone. In rows by task, the
    column `benchmark` contains the benchmark's name, a newline and the task.

    Args:
      benchmarks: rows of the view benchmark_by_length for one base model.
      scores: rows of the view score_by_length for the same base model.
    """
    found: list[Row] = []
    for name in dict.fromkeys(row["benchmark"] for row in benchmarks):
        rows = select(benchmarks, benchmark=name)
        sets = {(row["eval_length"], row["task_set"]) for row in rows}
        if len(sets) == len({length for length, _ in sets}):
            found += rows
            continue
        tasks = select(scores, benchmark=name)
        found += [
            {**row, "benchmark": f"{name}\n{row['task']}", "is_best": is_best(row, tasks)}
            for row in tasks
        ]
    return found


def benchmark_label(benchmark: str) -> str:
    """Return the name to show for the column `benchmark` of a row that `comparable` returned."""
    return benchmark.replace("\n", ": ").replace("_", " ")


def is_best(row: Row, tasks: Sequence[Row]) -> bool:
    """Return True if the row has the best value among the methods at its task and length.

    Return False for every row if fewer than two methods have a value, or if the methods have
    different sets of tasks.

    Args:
      row: a row of the view score_by_length.
      tasks: rows of that view for the same base model and benchmark.
    """
    column = select(tasks, task=row["task"], eval_length=row["eval_length"])
    sets = [other["task_set"] for other in column if other["value"] is not None]
    return row["rank"] == 1 and len(sets) > 1 and len(set(sets)) == 1


def base_context(study: Row) -> str:
    """Return the base model's trained context and note, such as "8,192-token context"."""
    trained = study["trained_context"]
    parts = (f"{trained:,}-token context" if trained else None, study.get("base_note"))
    return ", ".join(part for part in parts if part)
