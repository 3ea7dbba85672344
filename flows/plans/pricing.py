"""Predict the cost of a plan's steps on a device (tokens, FLOPs, seconds), and format it for users.

`lce plan`, budgets, the order of units and the remaining time of a run are based on these prices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lce_core import formats
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.steps import Step
from lce_core.study.cost import StepCost, total_cost
from lce_core.study.plan import StudyPlan
from lce_core.study.pricing.calibration import Calibration, Predicted, TimeLeft, group_of
from lce_core.study.pricing.passed_once import shares_of_text
from lce_core.study.pricing.speed import (
    DEVICE_TYPES,
    Speed,
    calibration_of,
    device_type_of,
    finished_on,
    speed_of,
)
from lce_core.study.progress import StepState
from lce_core.study.step_kinds import step_cost
from lce_core.study.units import units_to_do
from tasks.ray_engine.cluster import machines_for
from tasks.slots import is_training, slot_counts

GPU_HOURS_OF = "a100"
"""GPU that stands for "a GPU" in GPU-hours and budgets in gpuh on a machine without one, and for a
GPU that `DEVICE_TYPES` lacks."""


@dataclass(frozen=True)
class Price:
    """Predicted cost of one step, or of several steps together."""

    cost: StepCost = field(default_factory=StepCost)
    seconds: float = 0.0
    """Seconds on a single GPU, or in a single CPU worker."""
    estimated: bool = False
    """True if the input data of a step is missing."""
    error: float | None = None
    """Two relative standard deviations of `seconds`; None if unknown or for one step."""

    @property
    def error_shown(self) -> str:
        """Half width of the 95 % interval as " ±12 %"."""
        return "" if self.error is None else f" ±{max(1, round(100 * self.error))} %"


class Prices:
    """Prices of a plan's steps on one device, calibrated with measured times of finished steps.

    Steps of one run that read the same text or the same prompt prefixes share forward passes, which
    makes them cheaper. Missing steps cannot share passes with finished steps, so the two groups are
    priced separately. Without `states`, all steps count as missing.
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
        self._cache: dict[str, Price] = {}

    @property
    def is_calibrated(self) -> bool:
        return not self._calibration.is_empty

    @cached_property
    def _shares(self) -> dict[str, float]:
        """Fraction of a step's tokens that are processed for this step alone, unless 1."""
        steps = {**self._plan.steps, **self._plan.expected}
        done = {name for name, state in self._states.items() if state.state == "done"}
        shares = shares_of_text(steps[name] for name in steps if name in done)
        return shares | shares_of_text(steps[name] for name in steps if name not in done)

    def of(self, step: Step) -> Price:
        if (price := self._cache.get(step.fingerprint)) is None:
            cost = step_cost(step).scaled(self._shares.get(step.fingerprint, 1.0))
            group = group_of(step.kind, step.axes)
            seconds = self._calibration.seconds(group, self.speed.seconds(step.kind, cost))
            price = Price(cost, seconds, estimated=step.fingerprint not in self._plan.steps)
            self._cache[step.fingerprint] = price
        return price

    def alone(self, part: StudyPlan) -> Prices:
        """Return the prices if only the steps of `part` run and share forward passes."""
        return Prices(part, self.speed, self._states, self._calibration)

    def at(self, states: Mapping[str, StepState]) -> Prices:
        return Prices(self._plan, self.speed, states, self._calibration)

    def total(self, steps: Iterable[Step]) -> Price:
        steps = list(steps)
        prices = [self.of(step) for step in steps]
        groups = (group_of(step.kind, step.axes) for step in steps)
        seconds = (price.seconds for price in prices)
        expected = self._calibration.expected(zip(groups, seconds, strict=True))
        cost = total_cost([price.cost for price in prices])
        estimated = any(price.estimated for price in prices)
        return Price(cost, expected.seconds, estimated, expected.error)

    def predicted(self, steps: Iterable[Step], processes: int) -> dict[str, Predicted]:
        """Return by fingerprint duration, calibration group and slots (GPUs, or one CPU worker)."""
        found = {}
        for step in steps:
            shared = processes if is_training(step.kind) else 1
            slots = 1 if self.speed.device == "cpu" else shared
            seconds, group = self.of(step).seconds / shared, group_of(step.kind, step.axes)
            found[step.fingerprint] = Predicted(seconds, group, slots)
        return found

    @property
    def on_gpu(self) -> bool:
        return self.speed.device in DEVICE_TYPES

    def gpu_seconds(self, price: Price) -> float:
        """Return the seconds on this GPU, or on an A100 (by its data sheet) for a CPU."""
        if self.on_gpu:
            return price.seconds
        return DEVICE_TYPES[GPU_HOURS_OF].evaluation.seconds(price.cost)

    def time_of(self, price: Price) -> str:
        """Format a predicted time: "3.2 H100-hours", or for a CPU "3 h (0.1 A100-hours)"."""
        about = "~" * price.estimated
        text = f"{about}{self.hours_of(price.seconds)}{price.error_shown}"
        a100 = formats.three_digits(self.gpu_seconds(price) / 3600)
        return text if self.on_gpu else f"{text} ({about}{a100} A100-hours)"

    def hours_of(self, seconds: float) -> str:
        """Format seconds as "3.2 H100-hours" or, on a CPU, as a duration."""
        if self.on_gpu:
            return f"{formats.three_digits(seconds / 3600)} {self.speed.device.upper()}-hours"
        return formats.duration(seconds)

    def tokens_and_time(self, price: Price) -> tuple[str, str]:
        """Return tokens and predicted time as texts; "~" marks estimates without the input data."""
        about, time = "~" * price.estimated, formats.duration(price.seconds)
        if self.on_gpu:
            time = f"{formats.three_digits(price.seconds / 3600)} h"
        return f"{about}{formats.count(price.cost.tokens)}", f"{about}{time}"

    def device_of(self, slots: int) -> str:
        """Describe device and its speed's source: "8 H100s, speed from the data sheet"."""
        if self.on_gpu:
            source = "speed from the data sheet"
            source += ", corrected by finished steps" if self.is_calibrated else ""
            return f"{slots} {self.speed.device.upper()}{'s'[: slots > 1]}, {source}"
        source = {
            "measured": "speed measured in finished steps",
            "guessed": "speed estimated from a timed matrix product",
        }[self.speed.origin]
        return f"{slots} CPU worker{'s'[: slots > 1]}, {source}"


def device_here(execution: Execution) -> str:
    """Return the device type here or in the Ray cluster: "cpu", or a GPU like "h100"."""
    here = machines_for(execution)
    if not here.num_gpus:
        return "cpu"
    return device_type_of(here.gpu_name) or GPU_HOURS_OF


def slots_here(execution: Execution, device: str | None = None) -> int:
    """Return how many GPUs a run uses; on a CPU, how many steps run at once."""
    here = machines_for(execution)
    if device in (None, "cpu") or here.num_gpus:
        return slot_counts(execution, here.gpus).places
    training = (execution.training_slots or 1) * execution.training_processes
    slots = execution.slots if "slots" in execution.model_fields_set else 1
    return max(training, execution.evaluation_slots or 1, slots)


def prices_of(
    plan: StudyPlan,
    states: Mapping[str, StepState],
    execution: Execution,
    device: str | None = None,
) -> Prices:
    """Return the prices of a plan's steps, corrected by times measured in the store."""
    device = device or device_here(execution)
    finished = finished_on(device, Store(execution.home), execution.threads)
    speed = speed_of(device, finished)
    return Prices(plan, speed, states, calibration_of(speed, finished))


def time_left(
    plan: StudyPlan, states: Mapping[str, StepState], prices: Prices, execution: Execution
) -> TimeLeft:
    units = units_to_do(plan, states)
    steps = (step for unit in units for step in unit.steps)
    predicted = prices.predicted(steps, execution.training_processes)
    return TimeLeft(units, predicted, slots_here(execution, prices.speed.device))
