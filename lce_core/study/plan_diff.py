"""Explain, for `lce plan` and `lce lock --check`, which steps of a study changed and why.

Two steps are in the same place if they have the same kind, method, seed, length and other axes
(`StepSpec.place`). A missing step is stale if an earlier plan or lock of the study named another
step in the same place whose artifact is in the store. An artifact is orphaned if an earlier plan or
lock named it, and the present plan neither contains it nor has a stale step that replaces it. The
reason lists the settings that differ from the most similar step in the same place.
"""

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
from lce_core.study.step_kinds import KINDS, CellSpec, kind_named

_SHOWN_FIELDS = 3
_LONGEST_FIELD = 150

Place = tuple[object, ...]
"""Kind of a step, and its values on the axes in `StepSpec.place`."""
Fields = tuple[str, ...]
"""Differing settings as "path: old -> new", least nested first."""
Matched = TypeVar("Matched")


@dataclass(frozen=True)
class LockChange:
    """A step that was added (+), removed (-) or given another id (~) since a lock was written."""

    sign: Literal["~", "-", "+"]
    kind: str
    name: str
    old: str | None
    """Id in the lock."""
    new: str | None
    """Id in the plan; None if removed, or unknown because input data is missing."""
    fields: Fields = ()
    """Settings that differ, if the id changed."""


@dataclass(frozen=True)
class Orphan:
    """An artifact that an earlier plan or lock named and the plan does not use."""

    kind: str
    name: str
    id: str
    axes: Mapping[str, Any]
    differs: tuple[str, ...]
    """Settings that differ from the step `now`, or why the plan has no such step."""
    now: str | None
    """Id of the most similar planned step in the same place."""


def lock_changes(old: Lock, plan: StudyPlan) -> tuple[list[LockChange], int]:
    """List the steps that differ between a lock and a plan, sorted by kind and name.

    Also return the number of steps without input data whose other settings equal the lock's.
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
        if not (same_name := added.get(name) or waiting.get(name)):
            changes.append(LockChange("-", *name, step.id, None))
            continue
        before, lock = old.lineage(step.id), new if added.get(name) else expected
        fields, match = _nearest(
            (tuple(differences(before, lock.lineage(one.id))), one) for one in same_name
        )
        same_name.remove(match)
        if lock is new:
            changes.append(LockChange("~", *name, step.id, match.id, fields))
        elif fields := tuple(field for field in fields if not _is_digest(field)):
            changes.append(LockChange("~", *name, step.id, None, fields))
        else:
            num_unchecked += 1
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


def _is_digest(field: str) -> bool:
    return field.partition(":")[0].rpartition(".")[2] in DIGESTS


def _nearest(compared: Iterable[tuple[Fields, Matched]]) -> tuple[Fields, Matched]:
    return min(compared, key=lambda found: len(found[0]))


def compare(
    plan: StudyPlan, store: Store, states: Mapping[str, StepState], before: Collection[str]
) -> tuple[dict[str, StepState], tuple[Orphan, ...]]:
    """Return the states of the planned steps by fingerprint, and the study's orphaned artifacts.

    A missing step's reason compares it with the nearest finished one. `before` are ids of earlier
    plans and locks. All records are read if a step is new or one of these is not planned.
    """
    planned = {step.id for step in plan.steps.values()}
    left = (store.listing().ids & set(before)) - planned
    new = [s for s in plan.steps.values() if states[s.fingerprint] == StepState("missing", "new")]
    if not (new or left):  # skip reading all records of the store
        return dict(states), ()
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
    return explained, _orphans(plan, orphans) if orphans else ()


def in_short(fields: Sequence[str]) -> str:
    shown = [
        textwrap.shorten(field, _LONGEST_FIELD, placeholder=" ...")
        for field in fields[:_SHOWN_FIELDS]
    ]
    if (more := len(fields) - _SHOWN_FIELDS) > 0:
        shown.append(f"and {more} more")
    return "; ".join(shown)


def _explained(step: Step, near: Iterable[Record], left: Collection[str]) -> StepState:
    """Return the state of a missing step, with the settings that differ from a finished step.

    Of `near`, finished steps in the same place, those in `left` (unplanned artifacts of earlier
    plans or locks) make the state stale.
    """
    own = [record for record in near if record.fingerprint[:ID_DIGITS] in left]
    fields, record = _nearest((_fields(one, step), one) for one in own or near)
    if own:
        reason = f"changed: {in_short(fields)}"
        return StepState("missing", reason, "stale", fields, record.fingerprint[:ID_DIGITS])
    reason = f"new; differs from the most similar finished step: {in_short(fields)}"
    return StepState("missing", reason, "new", fields)


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
    """Return the settings that differ; if none, the step kind's version does."""
    found = differences(record.lineage, step.lineage)
    return tuple(found) or (f"version of kind {step.kind}: -> {kind_named(step.kind).version}",)


def _no_longer(record: Record, values: Mapping[tuple[str, str], set[object]]) -> str:
    for axis in kind_named(record.kind).place:
        if (value := record.axes.get(axis)) not in values.get((record.kind, axis), ()):
            return f"{axis} {value} is no longer in the study"
    return "the study no longer has this combination"


def _place(kind: str, axes: Mapping[str, Any]) -> Place:
    return (kind, *(axes.get(axis) for axis in kind_named(kind).place))
