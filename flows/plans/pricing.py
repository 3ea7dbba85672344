"""Price the steps of a plan on a device: tokens, FLOPs and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.steps import Step
from lce_core.study.plan import StudyPlan
from lce_core.study.pricing.calibration import Calibration, group_of
from lce_core.study.pricing.device_types import device_type_of
from lce_core.study.pricing.finished import finished_on
from lce_core.study.pricing.passed_once import shares_of_text
from lce_core.study.pricing.speed import Speed, calibration_of, speed_of
from lce_core.study.pricing.time_left import Predicted, TimeLeft
from lce_core.study.progress import StepState
from lce_core.study.step_cost import StepCost, total_cost
from lce_core.study.step_kinds import TrainingSpec, kind_named, step_cost
from lce_core.study.units import units_to_do
from tasks.engines import machines_for

UNKNOWN_GPU = "a100"
"""Device type whose speed is assumed for a GPU that the table of devices lacks."""


@dataclass(frozen=True)
class Price:
    """The cost of one step or the total of several."""

    cost: StepCost = field(default_factory=StepCost)
    seconds: float = 0.0
    """Seconds on one device; on a CPU, of one worker."""
    estimated: bool = False
    """True if the price includes a step whose data is missing here, so its cost is estimated."""
    error: float | None = None
    """Relative error of a total's seconds (two standard deviations); None if unknown."""

    def __add__(self, other: Price) -> Price:
        return Price(
            self.cost + other.cost,
            self.seconds + other.seconds,
            self.estimated or other.estimated,
        )


class Prices:
    """Prices of a plan's steps on one device, calibrated with measured times of finished steps.

    Each price is computed once. Missing steps save work by reading the same windows or prompt
    prefixes as other missing steps, but not as finished ones. Each of the two groups is therefore
    priced without the other.
    """

    def __init__(
        self,
        plan: StudyPlan,
        speed: Speed,
        states: Mapping[str, StepState] | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self._plan, self.speed = plan, speed
        self._states = states or {}
        self._calibration = calibration or Calibration()
        self._known: dict[str, Price] = {}

    @property
    def is_calibrated(self) -> bool:
        """True if enough steps have finished to correct predicted times by measured ones."""
        return bool(self._calibration.lines)

    @cached_property
    def _shares(self) -> dict[str, float]:
        steps = {**self._plan.steps, **self._plan.expected}
        done = {name for name, state in self._states.items() if state.state == "done"}
        shares = shares_of_text(steps[name] for name in steps if name in done)
        return shares | shares_of_text(steps[name] for name in steps if name not in done)

    def of(self, step: Step) -> Price:
        """Return the calibrated price of a step, also of one whose data is missing here."""
        if (known := self._known.get(step.fingerprint)) is None:
            cost = step_cost(step).scaled(self._shares.get(step.fingerprint, 1.0))
            estimated = step.fingerprint not in self._plan.steps
            group = group_of(step.kind, step.axes)
            seconds = self._calibration.seconds(group, self.speed.seconds(step.kind, cost))
            known = Price(cost, seconds, estimated)
            self._known[step.fingerprint] = known
        return known

    def alone(self, part: StudyPlan) -> Prices:
        """Return prices for `part` of the plan, as if it ran without the plan's other steps.

        Steps of `part` then share text only with each other, so they may cost more.
        """
        return Prices(part, self.speed, self._states, self._calibration)

    def at(self, states: Mapping[str, StepState]) -> Prices:
        """Return the same prices for newer states, in which more steps are done."""
        return Prices(self._plan, self.speed, states, self._calibration)

    def total(self, steps: Iterable[Step]) -> Price:
        """Return the total price of several steps, with its error."""
        steps = list(steps)
        prices = [self.of(step) for step in steps]
        groups = (group_of(step.kind, step.axes) for step in steps)
        seconds = (price.seconds for price in prices)
        expected = self._calibration.expected(zip(groups, seconds, strict=True))
        cost = total_cost([price.cost for price in prices])
        estimated = any(price.estimated for price in prices)
        return Price(cost, expected.seconds, estimated, expected.error)

    def predicted(self, steps: Iterable[Step], processes: int) -> dict[str, Predicted]:
        """Return seconds, calibration group and slots of each step, by fingerprint.

        Args:
          steps: the steps to predict.
          processes: number of processes, one per GPU, that share a training run.
        """
        return {step.fingerprint: self._predicted(step, processes) for step in steps}

    def _predicted(self, step: Step, processes: int) -> Predicted:
        shared = processes if issubclass(kind_named(step.kind), TrainingSpec) else 1
        slots = 1 if self.speed.device == "cpu" else shared
        return Predicted(self.of(step).seconds / shared, group_of(step.kind, step.axes), slots)


def device_here(execution: Execution) -> str:
    """Return the device type on which an execution computes here.

    This is "cpu", or a name of the table of devices such as "h100"; `UNKNOWN_GPU` stands for a GPU
    that the table lacks.
    """
    here = machines_for(execution)
    if not here.num_gpus:
        return "cpu"
    known = device_type_of(here.gpu_name)
    return known.name if known else UNKNOWN_GPU


def places_here(execution: Execution) -> int:
    """Return how many GPUs an execution uses; on a CPU, how many steps run at once."""
    return machines_for(execution).shape(execution).places


def prices_of(
    plan: StudyPlan,
    states: Mapping[str, StepState],
    execution: Execution,
    device: str | None = None,
) -> Prices:
    """Return the prices of a plan's steps on a device, corrected by measured times.

    Args:
      plan: the plan to price.
      states: state of each step, by fingerprint.
      execution: its home holds the measured times.
      device: device type; None for this machine's.

    Raises:
      SpecError: if there is no such device.
    """
    device = device or device_here(execution)
    finished = finished_on(device, Store(execution.home), execution.threads)
    speed = speed_of(device, finished)
    return Prices(plan, speed, states, calibration_of(speed, finished))


def time_left(
    plan: StudyPlan, states: Mapping[str, StepState], prices: Prices, execution: Execution
) -> TimeLeft:
    """Return an estimator of the time until all missing steps of a plan are done."""
    units = units_to_do(plan, states)
    steps = (step for unit in units for step in unit.steps)
    return TimeLeft(units, prices.predicted(steps, execution.processes), places_here(execution))
