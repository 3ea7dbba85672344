"""Units of work: what is submitted, retried and shown as one.

A training run or a data set is a unit of one step. The cells of one model at one length are a unit
together, so that the model is loaded once; each cell is still committed as it finishes. Cells that
score running text are a unit at all lengths, text after text and the longest first: shorter windows
are then read off longer ones where the method treats both alike, whichever worker takes the unit.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lce_core.store.steps import Step
from lce_core.study.plan import StudyPlan
from lce_core.study.progress import StepState
from lce_core.study.step_kinds import BaseSpec, kind_named


@dataclass(frozen=True)
class Unit:
    """Steps computed one after the other by one worker."""

    name: str
    kind: str
    steps: tuple[Step, ...]
    assists: bool = False
    """Whether others compute the steps, and only parts of them are to be computed for these."""

    @cached_property
    def needs(self) -> frozenset[str]:
        """Fingerprints of the steps that must be done before."""
        return frozenset(parent for step in self.steps for parent in step.parents.values())

    @property
    def is_divisible(self) -> bool:
        """Whether it pays to give the unit's steps to several workers."""
        return all(kind_named(self.kind).is_divisible(step) for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """JSON form, small enough to be a parameter of a Prefect task."""
        steps = [step.to_json() for step in self.steps]
        return {"name": self.name, "kind": self.kind, "steps": steps, "assists": self.assists}


def units_to_do(plan: StudyPlan, states: Mapping[str, StepState]) -> list[Unit]:
    """Units of all steps to do, in the order in which they should start.

    Base models come first, being long and waited for; then all of the first seed, so that there is
    something to compare early; and parents before those that need them.
    """
    groups: dict[tuple[object, ...], list[Step]] = {}
    for step in plan.steps.values():
        if states[step.fingerprint].state == "to do":
            groups.setdefault((step.kind, *kind_named(step.kind).unit(step)), []).append(step)
    units = [_unit(steps) for steps in groups.values()]
    seed = _first_seeds(plan)
    return sorted(units, key=lambda unit: (_wave(unit, seed), kind_named(unit.kind).order))


def dearest_first(
    units: Iterable[Unit], plan: StudyPlan, seconds: Mapping[str, float], host: str
) -> list[Unit]:
    """The units of `units_to_do`, among those of one seed and kind the dearest first.

    So none of them is left over at the end. Units within a factor of two count as equally dear and
    stand in an order of the host's own: hosts that begin at once do not all ask for the same.

    Args:
      units: of `plan`.
      plan: says which seed comes first.
      seconds: predicted, of each step.
      host: whose order it is.
    """
    seed = _first_seeds(plan)

    def rank(unit: Unit) -> tuple[float, ...]:
        price = sum(seconds[step.fingerprint] for step in unit.steps)
        drawn = zlib.crc32(f"{host} {unit.name}".encode())
        order = kind_named(unit.kind).order
        return _wave(unit, seed), order, -math.frexp(max(1.0, price))[1], drawn

    return sorted(units, key=rank)


def dependents(units: Iterable[Unit], lost: set[str]) -> list[Unit]:
    """Units that can no longer run once the steps `lost` have failed, transitively."""
    waiting, blocked = list(units), []
    while newly := [unit for unit in waiting if unit.needs & lost]:
        blocked += newly
        waiting = [unit for unit in waiting if unit not in newly]
        lost = lost | {step.fingerprint for unit in newly for step in unit.steps}
    return blocked


def _first_seeds(plan: StudyPlan) -> dict[str, int]:
    """Place of the first seed whose cells need a step, or would if they could be."""
    found: dict[str, int] = {}
    for cell in sorted(plan.cells, key=lambda cell: plan.study.seeds.index(cell.seed)):
        needed = [step.fingerprint for step in (cell.step, cell.checkpoint) if step]
        while needed:
            fingerprint = needed.pop()
            if fingerprint in plan.steps and fingerprint not in found:
                found[fingerprint] = plan.study.seeds.index(cell.seed)
                needed += plan.steps[fingerprint].parents.values()
    return found


def _wave(unit: Unit, seed: Mapping[str, int]) -> int:
    if kind_named(unit.kind).order <= BaseSpec.order:
        return -1
    return min(seed[step.fingerprint] for step in unit.steps)


def _unit(steps: list[Step]) -> Unit:
    kind = kind_named(steps[0].kind)
    return Unit(kind.unit_name(steps[0]), kind.kind, tuple(sorted(steps, key=kind.rank)))
