"""What the records of a store say of a device: steps that finished on it, their cost and time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lce_core.errors import SpecError
from lce_core.store.artifacts import Store
from lce_core.store.records import Record, cpu_name
from lce_core.store.steps import Step
from lce_core.study.pricing.device_types import device_type_of
from lce_core.study.pricing.passed_once import shares_of_text
from lce_core.study.pricing.time_left import Group, group_of
from lce_core.study.step_cost import StepCost
from lce_core.study.step_kinds import CellSpec, TrainingSpec, kind_named, spec_of

MOST_RECORDS = 240
"""Records of a kind that are read: more would make a plan slow and no better."""


@dataclass(frozen=True)
class Finished:
    """A step that was computed: its cost and its time."""

    kind: str
    cost: StepCost
    """Of what passed through the model: answers may have ended early."""
    seconds: float
    """Of one device, or of one worker on a CPU."""
    planned: StepCost
    """Of what a plan foresees, whole answers included."""
    group: Group


def finished_on(device: str, store: Store, threads: int) -> list[Finished]:
    """Steps that a device has computed, at most `MOST_RECORDS` of a kind.

    Args:
      device: "cpu", which means CPUs like this machine's, or the name of a type of GPU.
      store: where its records are.
      threads: CPU threads of a worker; records of CPUs with others are not compared.
    """
    return list(_finished(device, store, threads))


def _finished(device: str, store: Store, threads: int) -> Iterator[Finished]:
    for record in store.sample(MOST_RECORDS):
        if _ran_on(record, threads) != device:
            continue
        try:
            if (costs := _costs(record)) is None:
                continue
            cost, planned = costs
            trains = issubclass(kind_named(record.kind), TrainingSpec)
        except (SpecError, KeyError):  # of a plug-in that is not here, or is another by now
            continue
        # Processes of a training run share it.
        seconds = record.seconds * (record.execution.get("processes", 1) if trains else 1)
        group = group_of(record.kind, record.axes)
        yield Finished(record.kind, cost, seconds, planned, group)


def _ran_on(record: Record, threads: int) -> str | None:
    names = record.environment.get("accelerators") or []
    if names and record.execution.get("device") != "cpu":
        known = device_type_of(names[0])
        return known.name if known else None
    here = (record.environment.get("cpu"), record.execution.get("threads"))
    return "cpu" if here == (cpu_name(), threads) else None


def _costs(record: Record) -> tuple[StepCost, StepCost] | None:
    """What passed, without what came from caches and answers that ended early; what was planned.

    None of a cell over running text whose record, one of an earlier version, does not say how much
    of it was read off other cells.
    """
    step = Step(
        record.kind,
        record.name,
        record.spec,
        record.parents,
        record.lineage,
        record.fingerprint,
        record.axes,
    )
    spec = spec_of(step)
    planned = spec.cost(step)
    if not isinstance(spec, CellSpec):
        return planned, planned
    tokens = record.result.get("passed_tokens")
    foreseen = planned.scaled(shares_of_text([step]).get(step.fingerprint, 1.0))
    if tokens is None:
        return None if spec.benchmark.scores_text else (foreseen, foreseen)
    share = min(1.0, tokens / max(1, planned.tokens + planned.decoding.tokens))
    cost = replace(planned.scaled(share), decoding=planned.decoding.scaled(share))
    if spec.benchmark.scores_text:  # how much was read off other cells depended on the run
        return cost, cost
    return cost, foreseen
