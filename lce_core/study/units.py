"""Units of work: what is submitted, retried and shown as one.

A training run or a data set is a unit of one step. The cells of one model at one length are a unit
together, so that the model is loaded once; each cell is still committed as it finishes. Cells that
score running text are a unit at all lengths, the longest first: shorter windows are then read off
longer ones where the method treats both alike, whichever worker takes the unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lce_core.store.steps import Step
from lce_core.study.plan import StudyPlan
from lce_core.study.progress import StepState
from lce_core.study.step_kinds import kind_named


@dataclass(frozen=True)
class Unit:
    """Steps computed one after the other by one worker."""

    name: str
    kind: str
    steps: tuple[Step, ...]

    @property
    def needs(self) -> frozenset[str]:
        """Fingerprints of the steps that must be done before."""
        return frozenset(parent for step in self.steps for parent in step.parents.values())

    def to_json(self) -> dict[str, Any]:
        """JSON form, small enough to be a parameter of a Prefect task."""
        return {"name": self.name, "kind": self.kind, "steps": [s.to_json() for s in self.steps]}


def units_to_do(plan: StudyPlan, states: Mapping[str, StepState]) -> list[Unit]:
    """Units of all steps to do, in the order in which they should start."""
    groups: dict[tuple[object, ...], list[Step]] = {}
    for step in plan.steps.values():
        if states[step.fingerprint].state == "to do":
            groups.setdefault((step.kind, *kind_named(step.kind).unit(step)), []).append(step)
    units = [_unit(steps) for steps in groups.values()]
    return sorted(units, key=lambda unit: kind_named(unit.kind).order)


def dependents(units: Iterable[Unit], lost: set[str]) -> list[Unit]:
    """Units that can no longer run once the steps `lost` have failed, transitively."""
    waiting, blocked = list(units), []
    while newly := [unit for unit in waiting if unit.needs & lost]:
        blocked += newly
        waiting = [unit for unit in waiting if unit not in newly]
        lost = lost | {step.fingerprint for unit in newly for step in unit.steps}
    return blocked


def _unit(steps: list[Step]) -> Unit:
    kind = kind_named(steps[0].kind)
    return Unit(kind.unit_name(steps[0]), kind.kind, tuple(sorted(steps, key=kind.rank)))
