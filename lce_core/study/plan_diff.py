"""A plan against what the store holds of its study, as a diff: new, stale, orphaned, and why.

A step that is to do is stale if an earlier plan, or the lock, of the study had another one in its
place and the store holds that one; the fields in which the two differ say why. What such plans
named, the store holds and nothing takes the place of is orphaned. A version of a plug-in is a field
like any other.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lce_core.store.artifacts import Store
from lce_core.store.identity import SHORT
from lce_core.store.records import Record
from lce_core.store.steps import Step, differences
from lce_core.study.plan import StudyPlan
from lce_core.study.progress import StepState
from lce_core.study.step_kinds import CellSpec, kind_named
from lce_core.study.step_spec import KINDS

_SHOWN_FIELDS = 3
"""Of those that differ; the shallowest come first."""
_LONGEST_FIELD = 150

Place = tuple[object, ...]


@dataclass(frozen=True)
class Orphan:
    """An artifact that earlier plans of the study named and this one does not."""

    kind: str
    name: str
    id: str
    axes: Mapping[str, Any]
    differs: tuple[str, ...]
    """Fields that differ from the step now in its place, or why there is none."""
    now: str | None
    """Id of that step."""


@dataclass(frozen=True)
class PlanDiff:
    """A plan's steps, and what it has left behind."""

    states: dict[str, StepState]
    """By fingerprint; those to do say what differs."""
    orphans: tuple[Orphan, ...]


def compare(
    plan: StudyPlan, store: Store, states: Mapping[str, StepState], before: Collection[str]
) -> PlanDiff:
    """What differs between a plan and what the store holds of the study's earlier ones.

    Args:
      plan: what is planned now.
      store: its records are read if something is new or left behind.
      states: where each step stands, by fingerprint.
      before: ids that earlier plans and locks of the study name.
    """
    planned = {step.short for step in plan.steps.values()}
    left = (store.listing().ids & set(before)) - planned
    new = [s for s in plan.steps.values() if states[s.fingerprint] == StepState("to do", "new")]
    if not (new or left):  # then no record has to be read
        return PlanDiff(dict(states), ())
    wanted = {_place(step.kind, step.axes) for step in new}
    finished: dict[Place, list[Record]] = {}
    former: list[Record] = []
    for _, record in store.records():
        if record.kind not in KINDS:
            continue
        if (place := _place(record.kind, record.axes)) in wanted:
            finished.setdefault(place, []).append(record)
        if record.fingerprint[:SHORT] in left:
            former.append(record)
    explained = dict(states)
    for step in new:
        if near := finished.get(_place(step.kind, step.axes)):
            explained[step.fingerprint] = _explained(step, near, left)
    replaced = {state.was for state in explained.values()}
    orphans = [one for one in former if one.fingerprint[:SHORT] not in replaced]
    return PlanDiff(explained, _orphans(plan, orphans) if orphans else ())


def in_short(fields: Sequence[str]) -> str:
    """The first of some fields that differ, and how many more there are."""
    shown = [
        textwrap.shorten(field, _LONGEST_FIELD, placeholder=" ...")
        for field in fields[:_SHOWN_FIELDS]
    ]
    if (more := len(fields) - _SHOWN_FIELDS) > 0:
        shown.append(f"and {more} more")
    return "; ".join(shown)


def _explained(step: Step, near: Iterable[Record], left: Collection[str]) -> StepState:
    """The state of a new step in whose place others have finished."""
    own = [record for record in near if record.fingerprint[:SHORT] in left]
    fields, record = min(((_fields(one, step), one) for one in own or near), key=_number_of_fields)
    if own:
        reason = f"changed: {in_short(fields)}"
        return StepState("to do", reason, "stale", fields, record.fingerprint[:SHORT])
    return StepState("to do", f"new; the nearest finished: {in_short(fields)}", "new", fields)


def _orphans(plan: StudyPlan, records: Iterable[Record]) -> tuple[Orphan, ...]:
    places: dict[Place, list[Step]] = {}
    values: dict[tuple[str, str], set[object]] = {}
    for step in plan.steps.values():
        places.setdefault(_place(step.kind, step.axes), []).append(step)
        for axis in kind_named(step.kind).place:
            values.setdefault((step.kind, axis), set()).add(step.axes.get(axis))
    # Without its data a step has no id to look for: what stands in its place may be its own.
    waiting = {(step.kind, step.name) for step in plan.expected.values()}
    unavailable: dict[Place, str] = {}
    for cell in plan.cells:
        if cell.step is None:
            place = (CellSpec.kind, *(getattr(cell, axis) for axis in CellSpec.place))
            unavailable[place] = "" if plan.waits_for_data(cell) else f"{cell.unavailable}"
    known = plan.known_models
    absent = {m.known_as for m in plan.study.base_models if m.known_as not in known}
    found = []
    for record in records:
        place = _place(record.kind, record.axes)
        reason = unavailable.get(place)
        waits = reason == "" or record.axes.get("base_model") in absent
        if waits or (record.kind, record.name) in waiting:
            continue
        fields: tuple[str, ...] = (reason or _no_longer(record, values),)
        now = None
        if there := places.get(place):
            compared = ((_fields(record, step), step) for step in there)
            fields, step = min(compared, key=_number_of_fields)
            now = step.short
        short = record.fingerprint[:SHORT]
        found.append(Orphan(record.kind, record.name, short, record.axes, fields, now))
    return tuple(found)


def _fields(record: Record, step: Step) -> tuple[str, ...]:
    """In which fields a step differs from a finished one, as "place: old -> new"."""
    found = differences(record.lineage, step.lineage)
    return tuple(found) or (f"version of kind {step.kind}: -> {kind_named(step.kind).version}",)


def _number_of_fields(compared: tuple[tuple[str, ...], object]) -> int:
    return len(compared[0])


def _no_longer(record: Record, values: Mapping[tuple[str, str], set[object]]) -> str:
    """Which value of a place is planned no more."""
    for axis in kind_named(record.kind).place:
        if (value := record.axes.get(axis)) not in values.get((record.kind, axis), ()):
            return f"{axis} {value}: planned no more"
    return "nothing planned is in its place"


def _place(kind: str, axes: Mapping[str, Any]) -> Place:
    return (kind, *(axes.get(axis) for axis in kind_named(kind).place))
