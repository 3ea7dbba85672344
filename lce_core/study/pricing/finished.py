"""Read the cost and time of finished steps from a store's records, to calibrate the cost model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lce_core.errors import SpecError
from lce_core.store.artifacts import Store
from lce_core.store.records import Record, cpu_name
from lce_core.study.pricing.calibration import Group, group_of
from lce_core.study.pricing.device_types import device_type_of
from lce_core.study.pricing.passed_once import shares_of_text
from lce_core.study.step_cost import StepCost
from lce_core.study.step_kinds import CellSpec, TrainingSpec, kind_named, spec_of

MOST_RECORDS = 240
"""Records to read per step kind; more would slow down planning without improving the fit."""


@dataclass(frozen=True)
class Finished:
    """Cost and measured time of a finished step."""

    kind: str
    cost: StepCost
    """Cost of the processed tokens; answers may be shorter than planned."""
    seconds: float
    """Summed over the processes of a training run, one per GPU."""
    planned: StepCost
    """Cost in a plan, with answers of maximum length."""
    group: Group


def finished_on(device: str, store: Store, threads: int) -> list[Finished]:
    """Return a sample of a device's finished steps; "cpu" means this model and `threads`."""
    found = []
    for record in store.sample(MOST_RECORDS):
        if _ran_on(record, threads) != device:
            continue
        try:
            cost, planned = _costs(record)
            trains = issubclass(kind_named(record.kind), TrainingSpec)
        except (SpecError, KeyError):  # the plug-in is missing or has another version now
            continue
        # The processes of a training run work in parallel: count the seconds of each.
        machines = (record.execution.get("accelerate_config") or {}).get("num_machines", 1)
        processes = int(record.execution.get("processes", 1) * machines) if trains else 1
        group = group_of(record.kind, record.axes)
        found.append(Finished(record.kind, cost, record.seconds * processes, planned, group))
    return found


def _ran_on(record: Record, threads: int) -> str | None:
    names = record.environment.get("accelerators") or []
    if names and record.execution.get("device") != "cpu":
        known = device_type_of(names[0])
        return known.name if known else None
    here = (record.environment.get("cpu"), record.execution.get("threads"))
    return "cpu" if here == (cpu_name(), threads) else None


def _costs(record: Record) -> tuple[StepCost, StepCost]:
    """Return the cost of the tokens that the step processed, and the cost that a plan predicts."""
    step = record.step
    spec = spec_of(step)
    planned = spec.cost(step)
    if not isinstance(spec, CellSpec):
        return planned, planned
    tokens = record.result["passed_tokens"]
    share = min(1.0, tokens / max(1, planned.tokens + planned.decoding.tokens))
    cost = replace(planned.scaled(share), decoding=planned.decoding.scaled(share))
    if spec.benchmark.scores_text:  # the fraction of losses reused from other cells varies by run
        return cost, cost
    return cost, planned.scaled(shares_of_text([step]).get(step.fingerprint, 1.0))
