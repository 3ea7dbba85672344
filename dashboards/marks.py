"""Marks on scores that surely differ from the base model's, the same in every form of the report.

A mark stands only where the paired test on the same prompts says so: p_Holm below 0.05, an interval
without zero, and every seed on the same side (the view paired_difference).
"""

from __future__ import annotations

from dashboards.contents import Contents, Row

MARKS = {"better": "\u25b2", "worse": "\u25bc"}
"""By verdict."""
LEGEND = (
    f"{MARKS['better']} better, {MARKS['worse']} worse than the base model on the same prompts, by"
    " a paired test: p_Holm below 0.05. No mark: not sure, or too few prompts to say."
)
_PLACE = ("base_model", "method", "frozen", "benchmark", "task", "eval_length")
Place = tuple[object, ...]


def verdicts(contents: Contents) -> dict[Place, str]:
    """`better` or `worse` than the base model, by place; nothing where that is not sure."""
    return {place(row): row["verdict"] for row in contents.differences}


def place(row: Row) -> Place:
    """Where a score stands; of a mean over several tasks, which has none, without task."""
    return tuple(row.get(name) for name in _PLACE)
