"""Marks on scores that differ significantly from the base model's, for all report formats.

A mark requires a verdict of the view `paired_difference` on the same prompts.
"""

from __future__ import annotations

from dashboards.contents import Contents, Row

MARKS = {"better": "\u25b2", "worse": "\u25bc"}
"""Character shown after a score that is better or worse than the base model's."""
LEGEND = (
    f"{MARKS['better']} better, {MARKS['worse']} worse than the base model on the same prompts, by"
    " a paired test: p or q up to 0.05. No mark: undecided, the same, or too few prompts."
)
_PLACE = ("base_model", "method", "frozen", "benchmark", "task", "eval_length")
Place = tuple[object, ...]


def verdicts(contents: Contents) -> dict[Place, str]:
    """Return "better" or "worse" for each score that differs significantly from the base model's.

    The keys are the scores' `place`.
    """
    return {place(row): row["verdict"] for row in contents.differences}


def place(row: Row) -> Place:
    """Return the key of a row's score: (base model, method, frozen, benchmark, task, length).

    The task is None in a mean over several tasks.
    """
    return tuple(row.get(name) for name in _PLACE)
