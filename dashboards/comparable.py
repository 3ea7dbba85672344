"""Numbers that may stand in one column: means over the same tasks, or one task at a time."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.contents import Row, select


def comparable(benchmarks: Sequence[Row], scores: Sequence[Row]) -> list[Row]:
    """Rows of `benchmark_by_length`; those of tasks where methods were asked different ones.

    A mean over code and books says nothing beside a mean over code alone.

    Args:
      benchmarks: of the view benchmark_by_length, of one base model.
      scores: of the view score_by_length, of the same.
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


def is_best(row: Row, tasks: Sequence[Row]) -> bool:
    """Whether it is the first of several on its task at its length, all asked the same.

    Args:
      row: of the view score_by_length.
      tasks: its rows of the same base model and benchmark.
    """
    column = select(tasks, task=row["task"], eval_length=row["eval_length"])
    sets = [other["task_set"] for other in column if other["value"] is not None]
    return row["rank"] == 1 and len(sets) > 1 and len(set(sets)) == 1
