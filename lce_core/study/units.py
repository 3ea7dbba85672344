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

from lce_core.benchmarks import BENCHMARKS
from lce_core.store.steps import Step
from lce_core.study.plan import StudyPlan
from lce_core.study.progress import StepState

ORDER = ("rows", "held_out", "base", "finetune", "cell")
"""Earlier kinds first: what others wait for is started before what nobody waits for."""


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
            groups.setdefault(_group(step), []).append(step)
    units = [Unit(_name(steps), steps[0].kind, _in_order(steps)) for steps in groups.values()]
    return sorted(units, key=lambda unit: ORDER.index(unit.kind))


def dependents(units: Iterable[Unit], lost: set[str]) -> list[Unit]:
    """Units that can no longer run once the steps `lost` have failed, transitively."""
    waiting, blocked = list(units), []
    while newly := [unit for unit in waiting if unit.needs & lost]:
        blocked += newly
        waiting = [unit for unit in waiting if unit not in newly]
        lost = lost | {step.fingerprint for unit in newly for step in unit.steps}
    return blocked


def _group(step: Step) -> tuple[object, ...]:
    if step.kind != "cell":
        return (step.fingerprint,)
    axes = ("base_model", "method", "frozen", "seed")
    shared = "text" if _scores_text(step) else step.axes["eval_length"]
    return ("cell", *(step.axes[axis] for axis in axes), shared)


def _in_order(steps: list[Step]) -> tuple[Step, ...]:
    if steps[0].kind != "cell":
        return tuple(steps)
    return tuple(sorted(steps, key=lambda step: -step.axes["eval_length"]))


def _name(steps: list[Step]) -> str:
    first = steps[0]
    if first.kind != "cell":
        return f"{first.kind} {first.name}"
    axes = first.axes
    row = axes["method"] if axes["frozen"] else f"{axes['method']}-tuned"
    what = "on text" if _scores_text(first) else f"at {axes['eval_length']}"
    return f"evaluate {axes['base_model']}-{row}-s{axes['seed']} {what}"


def _scores_text(step: Step) -> bool:
    return BENCHMARKS.load(step.axes["benchmark"]).scores_text
