"""What the steps of a plan cost on a device: tokens, FLOPs and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.steps import Step
from lce_core.study.device_types import device_type_of
from lce_core.study.passed_once import shares_of_text
from lce_core.study.plan import StudyPlan
from lce_core.study.progress import StepState
from lce_core.study.speed import Speed, speed_of
from lce_core.study.step_cost import StepCost
from lce_core.study.step_kinds import TrainingSpec, kind_named, step_cost
from lce_core.study.time_left import Predicted, TimeLeft
from lce_core.study.units import units_to_do
from tasks.gpus import gpu_name, visible_gpus

UNKNOWN_GPU = "a100"
"""What a GPU that has no entry among the devices is priced as."""


@dataclass(frozen=True)
class Price:
    """What some steps cost."""

    cost: StepCost = field(default_factory=StepCost)
    seconds: float = 0.0
    """Of one device, or of one worker on a CPU."""
    estimated: bool = False
    """Whether a part of it was priced without the data that decide it."""

    def __add__(self, other: Price) -> Price:
        return Price(
            self.cost + other.cost,
            self.seconds + other.seconds,
            self.estimated or other.estimated,
        )


class Prices:
    """Prices of a plan's steps at one speed; each is computed once.

    What is still to do shares windows and beginnings of prompts with nothing that is done.
    """

    def __init__(
        self, plan: StudyPlan, speed: Speed, states: Mapping[str, StepState] | None = None
    ) -> None:
        self._plan, self.speed = plan, speed
        self._states = states or {}
        self._known: dict[str, Price] = {}

    @cached_property
    def _shares(self) -> dict[str, float]:
        steps = {**self._plan.steps, **self._plan.expected}
        done = {name for name, state in self._states.items() if state.state == "done"}
        shares = shares_of_text(steps[name] for name in steps if name in done)
        return shares | shares_of_text(steps[name] for name in steps if name not in done)

    def of(self, step: Step) -> Price:
        """Price of one step."""
        if (known := self._known.get(step.fingerprint)) is None:
            cost = step_cost(step).scaled(self._shares.get(step.fingerprint, 1.0))
            estimated = step.fingerprint not in self._plan.steps
            known = Price(cost, self.speed.seconds(step.kind, cost), estimated)
            self._known[step.fingerprint] = known
        return known

    def total(self, steps: Iterable[Step]) -> Price:
        """Price of several."""
        return sum(map(self.of, steps), Price())

    def predicted(self, steps: Iterable[Step], processes: int) -> dict[str, Predicted]:
        """Seconds and groups for `TimeLeft`, by fingerprint; `processes` share a training run."""
        return {step.fingerprint: self._predicted(step, processes) for step in steps}

    def _predicted(self, step: Step, processes: int) -> Predicted:
        shared = processes if issubclass(kind_named(step.kind), TrainingSpec) else 1
        return Predicted(self.of(step).seconds / shared, _group(step))


def device_here(execution: Execution) -> str:
    """The kind of device that an execution computes on here, as `lce plan` names it."""
    if execution.device == "cpu" or not visible_gpus():
        return "cpu"
    known = device_type_of(gpu_name() or "")
    return known.name if known else UNKNOWN_GPU


def prices_of(
    plan: StudyPlan,
    states: Mapping[str, StepState],
    execution: Execution,
    device: str | None = None,
) -> Prices:
    """Prices on a device; None for this machine's.

    Raises:
      SpecError: no such device.
    """
    store = Store(execution.home)
    speed = speed_of(device or device_here(execution), store, execution.threads)
    return Prices(plan, speed, states)


def time_left(
    plan: StudyPlan, states: Mapping[str, StepState], prices: Prices, execution: Execution
) -> TimeLeft:
    """What is left of a plan's steps to do."""
    units = units_to_do(plan, states)
    steps = (step for unit in units for step in unit.steps)
    return TimeLeft(units, prices.predicted(steps, execution.processes), execution.slots)


def _group(step: Step) -> tuple[str, ...]:
    axes = ("benchmark", "method") if "benchmark" in step.axes else ("method",)
    return (step.kind, *(str(step.axes.get(axis)) for axis in axes))
