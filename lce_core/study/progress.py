"""What a plan still needs: compares its steps with a store, and says why each is done or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lce_core.store.artifacts import Store
from lce_core.store.listing import Listing
from lce_core.store.records import Record
from lce_core.store.steps import Step, differences
from lce_core.study.plan import StudyPlan
from lce_core.study.step_kinds import kind_named

State = Literal["done", "to do", "failed", "unavailable"]

_FOR_GOOD = "non_finite"
"""The failure class that no later run tries again: the same numbers diverge again."""


@dataclass(frozen=True)
class StepState:
    """Where a step stands."""

    state: State
    reason: str


def inspect(
    plan: StudyPlan,
    store: Store,
    folders: Mapping[str, str],
    *,
    retry_failed: bool = False,
) -> dict[str, StepState]:
    """State of every step by fingerprint, parents before children.

    Args:
      plan: the steps to look up.
      store: where they are looked up.
      folders: `folders_of` the execution; what was out of reach is tried again with other ones.
      retry_failed: also try again what failed for good (a loss that became NaN).
    """
    states: dict[str, StepState] = {}
    listing = store.listing()
    for step in plan.steps.values():
        states[step.fingerprint] = _state(step, store, listing, states, folders, retry_failed)
    store.file_facts.save()
    return states


def explain(plan: StudyPlan, store: Store, states: dict[str, StepState]) -> dict[str, StepState]:
    """The same states, where each `to do` names what differs from the nearest finished step."""
    explained = dict(states)
    new = [s for s in plan.steps.values() if states[s.fingerprint] == StepState("to do", "new")]
    if not new:  # then no record has to be read
        return explained
    finished: dict[tuple[object, ...], list[Record]] = {}
    kinds = {step.kind for step in new}
    for _, record in store.records():
        if record.kind in kinds:
            finished.setdefault(_place(record.kind, record.axes), []).append(record)
    for step in new:
        if near := finished.get(_place(step.kind, step.axes)):
            reasons = [differences(record.lineage, step.lineage) for record in near]
            changed = min(reasons, key=len)
            if changed:
                explained[step.fingerprint] = StepState(
                    "to do", "changed: " + "; ".join(changed[:3])
                )
    return explained


def _state(
    step: Step,
    store: Store,
    listing: Listing,
    states: dict[str, StepState],
    folders: Mapping[str, str],
    retry_failed: bool,
) -> StepState:
    if store.record(step, listing):
        return StepState("done", "")
    for role, parent in step.parents.items():
        if states[parent].state == "failed":
            return StepState("failed", f"its {role} {parent[:12]} failed: {states[parent].reason}")
        if states[parent].state == "unavailable":
            return StepState("unavailable", states[parent].reason)
    failure = store.failure(step)
    if failure and not retry_failed:
        reason = f"{failure['class']}: {failure['message']}"
        if failure["class"] == _FOR_GOOD:
            return StepState("failed", reason)
        if failure["class"] == "unavailable" and failure["folders"] == folders:
            return StepState("unavailable", failure["message"])
        return StepState("to do", f"failed before ({reason})")
    if store.path(step, listing).exists():
        return StepState("to do", "its artifact is damaged")
    return StepState("to do", "new")


def _place(kind: str, axes: Mapping[str, Any]) -> tuple[object, ...]:
    return (kind, *(axes.get(axis) for axis in kind_named(kind).place))
