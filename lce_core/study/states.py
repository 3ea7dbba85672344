"""States of a study's cells and steps, shared by plans, catalog, `lce status` and dashboard.

A failed step that the next run retries is "missing" (see `StepState.change`).
dashboards/app/dashboard.sql implements `group_state` in SQL.
"""

from collections.abc import Sequence
from typing import Literal

State = Literal["done", "missing", "failed", "unavailable"]
STATES: dict[State, str] = {
    "done": "it has a result",
    "missing": "not computed yet, or its artifact is damaged",
    "failed": "the last attempt failed",
    "unavailable": "it cannot be computed here",
}
"""Meanings, shown to users."""

GroupState = Literal["done", "in part", "running", "failed", "missing", "unavailable"]


def group_state(states: Sequence[str]) -> GroupState:
    """Return one state for a group of cells, such as all tasks and seeds of a method at a length.

    "running" if any cell is, else "failed" if any is, else "unavailable" if all are; otherwise
    "done", "in part" or "missing" by the available cells. Unknown values count as "missing".
    """
    if "running" in states:
        return "running"
    if "failed" in states:
        return "failed"
    possible = [state for state in states if state != "unavailable"]
    if not possible:
        return "unavailable"
    done = possible.count("done")
    return "done" if done == len(possible) else "in part" if done else "missing"
