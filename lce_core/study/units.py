"""Group steps into units: lists of steps that one worker computes and that are retried together.

All cells of one model at one length form a unit, so that the worker loads the model once; cells
that score running text across all lengths, because shorter windows can reuse losses of longer ones.
Other steps are units by themselves.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lce_core.store.steps import Step, closure
from lce_core.study.plan import StudyPlan
from lce_core.study.progress import StepState, inputs_of, needed_steps
from lce_core.study.step_kinds import BaseSpec, ChoiceSpec, kind_named

_TRIALS = -1
"""Before the first seed, whose index is 0."""


@dataclass(frozen=True)
class Unit:
    """Steps that one worker computes one after another."""

    name: str
    kind: str
    steps: tuple[Step, ...]
    assists: bool = False
    """Another worker computes the steps; this unit's worker only helps with parts of them."""

    @cached_property
    def needs(self) -> frozenset[str]:
        """Fingerprints of the steps that must be done before."""
        return frozenset(one for step in self.steps for one in inputs_of(step))

    @cached_property
    def outputs(self) -> frozenset[str]:
        return frozenset(step.fingerprint for step in self.steps)

    @property
    def is_divisible(self) -> bool:
        return all(kind_named(self.kind).is_divisible(step) for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        steps = [step.to_json() for step in self.steps]
        return {"name": self.name, "kind": self.kind, "steps": steps, "assists": self.assists}

    @classmethod
    def from_json(cls, unit: Mapping[str, Any]) -> Unit:
        return cls(**{**unit, "steps": tuple(Step(**step) for step in unit["steps"])})


def units_to_do(plan: StudyPlan, states: Mapping[str, StepState]) -> list[Unit]:
    """Group the steps that a run computes into units, in the order in which they should start.

    Data steps and base models come first, because other steps wait for them, then the trials of
    `tune` and their choices, then one seed after the other, so that methods can be compared early.
    Within a seed, kinds follow `StepSpec.order`.
    """
    groups: dict[tuple[object, ...], list[Step]] = {}
    needed = needed_steps(plan, states)
    for step in plan.steps.values():
        if step.fingerprint in needed:
            groups.setdefault((step.kind, *kind_named(step.kind).unit(step)), []).append(step)
    units = [_unit(steps) for steps in groups.values()]
    seed = _first_seeds(plan)
    return sorted(units, key=lambda unit: (_wave(unit, seed), kind_named(unit.kind).order))


def dearest_first(
    units: Iterable[Unit], plan: StudyPlan, seconds: Mapping[str, float], host: str
) -> list[Unit]:
    """Sort units like `units_to_do`, but by decreasing duration among units of one seed and kind.

    Otherwise a long unit could start last and run alone. Units whose durations lie between the same
    powers of two seconds are shuffled, so that hosts that start together claim different units.
    """
    seed = _first_seeds(plan)

    def rank(unit: Unit) -> tuple[float, ...]:
        price = sum(seconds[step.fingerprint] for step in unit.steps)
        drawn = zlib.crc32(f"{host} {unit.name}".encode())
        order = kind_named(unit.kind).order
        return _wave(unit, seed), order, -math.frexp(max(1.0, price))[1], drawn

    return sorted(units, key=rank)


def abandoned(units: Iterable[Unit], lost: set[str]) -> list[Unit]:
    """Return the waiting units that need not run after the steps `lost` (fingerprints) failed.

    A unit is abandoned if it needs a lost step, or if only abandoned units need its steps.
    """
    waiting, found = list(units), []
    needed = read = {need for unit in waiting for need in unit.needs} if lost else set()
    while newly := [
        unit
        for unit in waiting
        if unit.needs & lost or (unit.outputs <= read and not unit.outputs & needed)
    ]:
        found += newly
        waiting = [unit for unit in waiting if unit not in newly]
        lost = lost.union(*(unit.outputs for unit in newly))
        needed = {need for unit in waiting for need in unit.needs}
    return found


def _first_seeds(plan: StudyPlan) -> dict[str, int]:
    """Return by fingerprint the index of the first seed that needs a step; `_TRIALS` for trials."""
    found: dict[str, int] = {}
    for cell in sorted(plan.cells, key=lambda cell: plan.study.seeds.index(cell.seed)):
        needed = [step.fingerprint for step in (cell.step, cell.checkpoint) if step]
        while needed:
            fingerprint = needed.pop()
            if fingerprint in plan.steps and fingerprint not in found:
                found[fingerprint] = plan.study.seeds.index(cell.seed)
                needed += plan.steps[fingerprint].parents.values()
    choices = [name for name, step in plan.steps.items() if step.kind == ChoiceSpec.kind]
    of_trials = closure(choices, lambda fingerprint: plan.steps[fingerprint].parents.values())
    return found | dict.fromkeys(of_trials, _TRIALS)


def _wave(unit: Unit, seed: Mapping[str, int]) -> int:
    if kind_named(unit.kind).order <= BaseSpec.order:
        return _TRIALS - 1
    return min(seed[step.fingerprint] for step in unit.steps)


def _unit(steps: list[Step]) -> Unit:
    kind = kind_named(steps[0].kind)
    return Unit(kind.unit_name(steps[0]), kind.kind, tuple(sorted(steps, key=kind.rank)))
