"""Compare a plan with its study's lock, and with the stored artifacts of earlier plans.

`lock_changes` lists the steps that differ from a lock, by kind and name. `compare` says which steps
are new or stale, which artifacts are orphaned, and why. If several old steps match a new one, both
functions compare it with the one that has the fewest differing fields.

A step's place is its kind with the axes that the kind names in `place`. A step to do is stale if an
earlier plan or the lock of the study named another step in the same place and the store holds that
step's artifact; the differing fields are the reason. An artifact is orphaned if an earlier plan or
the lock named it, the store holds it and no planned step replaces it. A plug-in's version is
compared like any other field.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from lce_core.store.artifacts import Store
from lce_core.store.identity import ID_DIGITS
from lce_core.store.records import Record
from lce_core.store.steps import Step, differences
from lce_core.study.lock import DIGESTS, Lock, LockedStep, lock_of
from lce_core.study.plan import StudyPlan
from lce_core.study.progress import StepState
from lce_core.study.step_kinds import CellSpec, kind_named
from lce_core.study.step_spec import KINDS

_SHOWN_FIELDS = 3
"""Differing fields shown in a reason, shallowest first."""
_LONGEST_FIELD = 150

Place = tuple[object, ...]
Fields = tuple[str, ...]
"""Differing fields of two steps as "path: old -> new", shallowest path first."""
Matched = TypeVar("Matched")


@dataclass(frozen=True)
class LockChange:
    """A step that was added, removed or given another id since a lock was written."""

    sign: Literal["~", "-", "+"]
    """`~`: the id changed; `-`: the step was removed; `+`: the step was added."""
    kind: str
    name: str
    old: str | None
    new: str | None
    """Old and new id. None if there is no such step, or if its id needs data that is missing."""
    fields: Fields = ()
    """Differing fields of a `~` step."""


@dataclass(frozen=True)
class Orphan:
    """An artifact that an earlier plan or lock of the study named and this plan does not."""

    kind: str
    name: str
    id: str
    axes: Mapping[str, Any]
    differs: tuple[str, ...]
    """Fields that differ from the step `now`. If `now` is None: one entry, why none is planned."""
    now: str | None
    """Id of the most similar step now planned in the same place; None if there is none."""


@dataclass(frozen=True)
class PlanDiff:
    """States of a plan's steps, and the artifacts that the plan no longer names."""

    states: dict[str, StepState]
    """States by fingerprint; the reasons of steps to do name the differing fields."""
    orphans: tuple[Orphan, ...]


def lock_changes(old: Lock, plan: StudyPlan) -> tuple[list[LockChange], int]:
    """List the steps that differ between a lock and a plan, sorted by kind and name.

    A step whose input data is missing has no id. It is compared field by field without digests.

    Returns:
      The changes, and the number of steps that equal the lock except for digests that could not
      be checked because their data is missing.
    """
    new = lock_of(plan)
    expected = lock_of(plan, expected=True) if plan.expected else new
    added = _by_name(step for step in new.steps.values() if step.id not in old.steps)
    waiting = _by_name(expected.steps[step.id] for step in plan.expected.values())
    changes, num_unchecked = [], 0
    for step in old.steps.values():
        name = (step.kind, step.name)
        if step.id in new.steps:
            continue
        if same_name := added.get(name):
            fields, match = _nearest_locked(old, step, new, same_name)
            same_name.remove(match)
            changes.append(LockChange("~", *name, step.id, match.id, fields))
        elif same_name := waiting.get(name):
            fields, match = _nearest_locked(old, step, expected, same_name)
            same_name.remove(match)
            if fields := tuple(field for field in fields if not _is_digest(field)):
                changes.append(LockChange("~", *name, step.id, None, fields))
            else:
                num_unchecked += 1
        else:
            changes.append(LockChange("-", *name, step.id, None))
    for steps in added.values():
        changes += [LockChange("+", step.kind, step.name, None, step.id) for step in steps]
    for steps in waiting.values():
        changes += [
            LockChange("+", step.kind, step.name, None, None)
            for step in steps
            if step.id not in new.steps
        ]
    return sorted(changes, key=lambda one: (one.kind, one.name, one.sign != "-")), num_unchecked


def _by_name(steps: Iterable[LockedStep]) -> dict[tuple[str, str], list[LockedStep]]:
    found: dict[tuple[str, str], list[LockedStep]] = {}
    for step in steps:
        found.setdefault((step.kind, step.name), []).append(step)
    return found


def _nearest_locked(
    old: Lock, step: LockedStep, new: Lock, candidates: Iterable[LockedStep]
) -> tuple[Fields, LockedStep]:
    before = old.lineage(step.id)
    return _nearest((tuple(differences(before, new.lineage(c.id))), c) for c in candidates)


def _is_digest(field: str) -> bool:
    return field.partition(":")[0].rpartition(".")[2] in DIGESTS


def _nearest(compared: Iterable[tuple[Fields, Matched]]) -> tuple[Fields, Matched]:
    """Return the candidate with the fewest differing fields, after these fields."""
    return min(compared, key=lambda found: len(found[0]))


def compare(
    plan: StudyPlan, store: Store, states: Mapping[str, StepState], before: Collection[str]
) -> PlanDiff:
    """Compare a plan with the stored artifacts of the study's earlier plans and locks.

    Args:
      plan: The current plan.
      store: Store whose records are read if a step is new or an earlier artifact is not planned.
      states: State of each step by fingerprint.
      before: Ids that earlier plans and locks of the study name.
    """
    planned = {step.id for step in plan.steps.values()}
    left = (store.listing().ids & set(before)) - planned
    new = [s for s in plan.steps.values() if states[s.fingerprint] == StepState("missing", "new")]
    if not (new or left):  # skip reading all records of the store
        return PlanDiff(dict(states), ())
    wanted = {_place(step.kind, step.axes) for step in new}
    finished: dict[Place, list[Record]] = {}
    former: list[Record] = []
    for _, record in store.records():
        if record.kind not in KINDS:
            continue
        if (place := _place(record.kind, record.axes)) in wanted:
            finished.setdefault(place, []).append(record)
        if record.fingerprint[:ID_DIGITS] in left:
            former.append(record)
    explained = dict(states)
    for step in new:
        if near := finished.get(_place(step.kind, step.axes)):
            explained[step.fingerprint] = _explained(step, near, left)
    replaced = {state.was for state in explained.values()}
    orphans = [one for one in former if one.fingerprint[:ID_DIGITS] not in replaced]
    return PlanDiff(explained, _orphans(plan, orphans) if orphans else ())


def in_short(fields: Sequence[str]) -> str:
    """Return the first differing fields, shortened, and how many more there are, as one line."""
    shown = [
        textwrap.shorten(field, _LONGEST_FIELD, placeholder=" ...")
        for field in fields[:_SHOWN_FIELDS]
    ]
    if (more := len(fields) - _SHOWN_FIELDS) > 0:
        shown.append(f"and {more} more")
    return "; ".join(shown)


def _explained(step: Step, near: Iterable[Record], left: Collection[str]) -> StepState:
    """Return the state of a new step, given the finished steps in its place.

    Prefer artifacts of the study's own earlier plans (`left`): they make the step stale.
    """
    own = [record for record in near if record.fingerprint[:ID_DIGITS] in left]
    fields, record = _nearest((_fields(one, step), one) for one in own or near)
    if own:
        reason = f"changed: {in_short(fields)}"
        return StepState("missing", reason, "stale", fields, record.fingerprint[:ID_DIGITS])
    return StepState("missing", f"new; the nearest finished: {in_short(fields)}", "new", fields)


def _orphans(plan: StudyPlan, records: Iterable[Record]) -> tuple[Orphan, ...]:
    places: dict[Place, list[Step]] = {}
    values: dict[tuple[str, str], set[object]] = {}
    for step in plan.steps.values():
        places.setdefault(_place(step.kind, step.axes), []).append(step)
        for axis in kind_named(step.kind).place:
            values.setdefault((step.kind, axis), set()).add(step.axes.get(axis))
    # A step without its input data has no id, so the artifact in its place may be its own.
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
        fields: Fields = (reason or _no_longer(record, values),)
        now = None
        if there := places.get(place):
            fields, step = _nearest((_fields(record, step), step) for step in there)
            now = step.id
        step_id = record.fingerprint[:ID_DIGITS]
        found.append(Orphan(record.kind, record.name, step_id, record.axes, fields, now))
    return tuple(found)


def _fields(record: Record, step: Step) -> Fields:
    """List the differing fields of a finished and a planned step; if none, the kind's version."""
    found = differences(record.lineage, step.lineage)
    return tuple(found) or (f"version of kind {step.kind}: -> {kind_named(step.kind).version}",)


def _no_longer(record: Record, values: Mapping[tuple[str, str], set[object]]) -> str:
    """Return, as a phrase, which axis value of the artifact no planned step of its kind has."""
    for axis in kind_named(record.kind).place:
        if (value := record.axes.get(axis)) not in values.get((record.kind, axis), ()):
            return f"{axis} {value}: planned no more"
    return "nothing planned is in its place"


def _place(kind: str, axes: Mapping[str, Any]) -> Place:
    return (kind, *(axes.get(axis) for axis in kind_named(kind).place))
