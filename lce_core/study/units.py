"""Group steps into units of work, which are submitted, retried and displayed as one.

A training run or a data step is a unit by itself. All cells of one model at one length form a unit,
so that the model is loaded once; each cell is committed as soon as it finishes. Text-scoring cells
of one model form a unit across all lengths, ordered by text and then longest first. The losses of
shorter windows are then read from longer ones where the method treats both alike, on any worker.
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
    """Steps that one worker computes one after another."""

    name: str
    kind: str
    steps: tuple[Step, ...]
    assists: bool = False
    """True if another worker computes the steps, and this unit only parts of them to help it."""

    @cached_property
    def needs(self) -> frozenset[str]:
        """Fingerprints of the parent steps, which must be done before the unit starts."""
        return frozenset(parent for step in self.steps for parent in step.parents.values())

    @property
    def is_divisible(self) -> bool:
        """True if splitting the unit across several workers finishes it sooner."""
        return all(kind_named(self.kind).is_divisible(step) for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the unit as JSON, small enough for a parameter of a Prefect task."""
        steps = [step.to_json() for step in self.steps]
        return {"name": self.name, "kind": self.kind, "steps": steps, "assists": self.assists}


def units_to_do(plan: StudyPlan, states: Mapping[str, StepState]) -> list[Unit]:
    """Group all steps to do into units, in the order in which the units should start.

    Data steps and base models come first, because other steps wait for them. Then come all units
    of the first seed, so that results can be compared early. Within a seed, kinds follow their
    `order`, so that parents precede children.
    """
    groups: dict[tuple[object, ...], list[Step]] = {}
    for step in plan.steps.values():
        if states[step.fingerprint].state == "missing":
            groups.setdefault((step.kind, *kind_named(step.kind).unit(step)), []).append(step)
    units = [_unit(steps) for steps in groups.values()]
    seed = _first_seeds(plan)
    return sorted(units, key=lambda unit: (_wave(unit, seed), kind_named(unit.kind).order))


def dearest_first(
    units: Iterable[Unit], plan: StudyPlan, seconds: Mapping[str, float], host: str
) -> list[Unit]:
    """Sort units as `units_to_do` does, but longest first among units of one seed and kind.

    Starting long units first avoids one long unit running alone at the end. Units whose predicted
    time lies in the same power-of-two range are shuffled by a hash of host and name, so that hosts
    that start together do not claim the same unit.

    Args:
      units: Units of `plan`.
      plan: The plan, for the order of seeds.
      seconds: Predicted seconds of each step, by fingerprint.
      host: Name of the host that claims the units.
    """
    seed = _first_seeds(plan)

    def rank(unit: Unit) -> tuple[float, ...]:
        price = sum(seconds[step.fingerprint] for step in unit.steps)
        drawn = zlib.crc32(f"{host} {unit.name}".encode())
        order = kind_named(unit.kind).order
        return _wave(unit, seed), order, -math.frexp(max(1.0, price))[1], drawn

    return sorted(units, key=rank)


def dependents(units: Iterable[Unit], lost: set[str]) -> list[Unit]:
    """Return the units that depend on a step in `lost` (fingerprints of failed steps).

    Units that depend on a step of a returned unit are returned as well.
    """
    waiting, blocked = list(units), []
    while newly := [unit for unit in waiting if unit.needs & lost]:
        blocked += newly
        waiting = [unit for unit in waiting if unit not in newly]
        lost = lost | {step.fingerprint for unit in newly for step in unit.steps}
    return blocked


def _first_seeds(plan: StudyPlan) -> dict[str, int]:
    """Return, by step fingerprint, the index of the first seed that has a cell depending on it."""
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
