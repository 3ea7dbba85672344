"""What the steps of a plan cost on a device: tokens, FLOPs and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.steps import Step
from lce_core.study.plan import StudyPlan
from lce_core.study.pricing.correction import Correction
from lce_core.study.pricing.device_types import device_type_of
from lce_core.study.pricing.finished import finished_on
from lce_core.study.pricing.passed_once import shares_of_text
from lce_core.study.pricing.speed import Speed, correction_of, speed_of
from lce_core.study.pricing.time_left import Predicted, TimeLeft, group_of
from lce_core.study.progress import StepState
from lce_core.study.step_cost import StepCost, total_cost
from lce_core.study.step_kinds import TrainingSpec, kind_named, step_cost
from lce_core.study.units import units_to_do
from tasks.engines import machines_for

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
    error: float | None = None
    """Of the seconds of a total: relative, two standard deviations; None where it is not known."""

    def __add__(self, other: Price) -> Price:
        return Price(
            self.cost + other.cost,
            self.seconds + other.seconds,
            self.estimated or other.estimated,
        )


class Prices:
    """Prices of a plan's steps at one speed, corrected by what has finished; each computed once.

    What is still to do shares windows and beginnings of prompts with nothing that is done.
    """

    def __init__(
        self,
        plan: StudyPlan,
        speed: Speed,
        states: Mapping[str, StepState] | None = None,
        correction: Correction | None = None,
    ) -> None:
        self._plan, self.speed = plan, speed
        self._states = states or {}
        self._correction = correction or Correction()
        self._known: dict[str, Price] = {}

    @property
    def is_corrected(self) -> bool:
        """Whether enough has finished to correct anything."""
        return bool(self._correction.lines)

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
            group = group_of(step.kind, step.axes)
            seconds = self._correction.seconds(group, self.speed.seconds(step.kind, cost))
            known = Price(cost, seconds, estimated)
            self._known[step.fingerprint] = known
        return known

    def alone(self, part: StudyPlan) -> Prices:
        """Prices of a part of the plan if nothing else of it is run."""
        return Prices(part, self.speed, self._states, self._correction)

    def at(self, states: Mapping[str, StepState]) -> Prices:
        """The same prices once more is done."""
        return Prices(self._plan, self.speed, states, self._correction)

    def total(self, steps: Iterable[Step]) -> Price:
        """Price of several, with its error."""
        steps = list(steps)
        prices = [self.of(step) for step in steps]
        groups = (group_of(step.kind, step.axes) for step in steps)
        seconds = (price.seconds for price in prices)
        expected = self._correction.expected(zip(groups, seconds, strict=True))
        cost = total_cost([price.cost for price in prices])
        estimated = any(price.estimated for price in prices)
        return Price(cost, expected.seconds, estimated, expected.error)

    def predicted(self, steps: Iterable[Step], processes: int) -> dict[str, Predicted]:
        """Seconds and groups for `TimeLeft`, by fingerprint; `processes` share a training run."""
        return {step.fingerprint: self._predicted(step, processes) for step in steps}

    def _predicted(self, step: Step, processes: int) -> Predicted:
        shared = processes if issubclass(kind_named(step.kind), TrainingSpec) else 1
        places = 1 if self.speed.device == "cpu" else shared
        return Predicted(self.of(step).seconds / shared, group_of(step.kind, step.axes), places)


def device_here(execution: Execution) -> str:
    """The kind of device that an execution computes on here, as `lce plan` names it."""
    here = machines_for(execution)
    if not here.num_gpus:
        return "cpu"
    known = device_type_of(here.gpu_name)
    return known.name if known else UNKNOWN_GPU


def places_here(execution: Execution) -> int:
    """Places of an execution: GPUs that it uses, or its steps at a time on a CPU."""
    return machines_for(execution).shape(execution).places


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
    device = device or device_here(execution)
    finished = finished_on(device, Store(execution.home), execution.threads)
    speed = speed_of(device, finished)
    return Prices(plan, speed, states, correction_of(speed, finished))


def time_left(
    plan: StudyPlan, states: Mapping[str, StepState], prices: Prices, execution: Execution
) -> TimeLeft:
    """What is left of a plan's steps to do."""
    units = units_to_do(plan, states)
    steps = (step for unit in units for step in unit.steps)
    return TimeLeft(units, prices.predicted(steps, execution.processes), places_here(execution))
