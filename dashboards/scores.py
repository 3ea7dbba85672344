"""Scores in all report formats: which are comparable, significant, or have holes."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.contents import Contents, Row, grouped, select
from dashboards.families import Variant

MARKS = {"better": "\u25b2", "worse": "\u25bc"}
LEGEND = (
    f"{MARKS['better']} better, {MARKS['worse']} worse than the base model on the same prompts, by"
    " a paired test: p or q up to 0.05. No mark: undecided, the same, or too few prompts."
)
_PLACE = ("base_model", "method", "frozen", "benchmark", "task", "eval_length")

Place = tuple[Variant, str | None, int]
"""Variant, task (None in a mean over tasks) and length in tokens of a score."""


def scores_of(contents: Contents, rows: Sequence[Row]) -> dict[Place, Row]:
    """Return the scores of one benchmark by place, with the `verdict` against the base model.

    The verdict is "better", "worse" or None (view `paired_difference`). The rows are those of
    `comparable` or of the query `scores`.
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
        found[Variant.of(row), row.get("task"), row["eval_length"]] = {
            **row, "verdict": None if row["value"] is None else verdict
        }  # fmt: skip
    return found


def hole(score: Row) -> str:
    """Return the number of finished seeds, to show without a value."""
    return f"{score['num_seeds']} of {score['num_planned']} seeds"


def comparable(benchmarks: Sequence[Row], scores: Sequence[Row]) -> list[Row]:
    """Return the means of each benchmark, or its scores by task if methods have different tasks.

    A mean over code and books cannot be compared with one over code alone. In rows by task, the
    column `benchmark` contains the benchmark's name, a newline and the task.
    """
    found: list[Row] = []
    for name, rows in grouped(benchmarks, "benchmark").items():
        sets = {(row["eval_length"], row["task_set"]) for row in rows}
        if len(sets) == len({length for length, _ in sets}):
            found += rows
        else:
            tasks = select(scores, benchmark=name)
            found += [{**row, "benchmark": f"{name}\n{row['task']}"} for row in tasks]
    return found


def benchmark_label(benchmark: str) -> str:
    return benchmark.replace("\n", ": ").replace("_", " ")


def base_context(study: Row) -> str:
    """Return the base model's trained context and note, such as "8,192-token context"."""
    trained = study["trained_context"]
    parts = (f"{trained:,}-token context" if trained else None, study.get("base_note"))
    return ", ".join(part for part in parts if part)
