"""Select scores that are comparable in one column: means over the same tasks, or single tasks."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.contents import Row, select


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
