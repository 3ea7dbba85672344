"""Look up in the store which steps of a study are done; `lce plan` and `lce status` print it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from flows.plans.pricing import Price, Prices, gpu_seconds, prices_of
from flows.request import as_last_run, compile_request
from flows.selection import (
    change_lines,
    check_plugin_changes,
    fetching,
    models_to_fetch,
    select_cells,
)
from lce.views.needs import needs_of
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failures import folders_of
from lce_core.store.lease import Holder, holders
from lce_core.store.steps import Step
from lce_core.study.lock import ids_before
from lce_core.study.looks import without_settled
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.plan_diff import Orphan, compare
from lce_core.study.progress import Change, StepState, inspect, needed_steps


@dataclass(frozen=True)
class Inspection:
    """A study's plan, with the state of each of its steps in the store."""

    plan: StudyPlan
    states: dict[str, StepState]
    """State of each step of `plan.steps`, by the step's fingerprint."""
    store: Store
    execution: Execution
    orphans: tuple[Orphan, ...] = ()
    """Artifacts of the study's earlier plans that this plan does not use."""

    def cell_state(self, cell: PlannedCell) -> StepState:
        """Return the state of a cell; "unavailable" if this machine cannot compute the cell."""
        if cell.step is None:
            return StepState("unavailable", cell.unavailable or "")
        return self.states[cell.step.fingerprint]

    def change_counts(self) -> Counter[Change]:
        """Return the number of cells in each state: done, new, stale, failed, unavailable."""
        return Counter(self.cell_state(cell).change for cell in self.plan.cells)

    def plugin_lines(self) -> list[str]:
        """Return a sentence for each plug-in whose code changed without a new VERSION."""
        return change_lines({name: self.states[name] for name in self.plan.steps})

    def again(self) -> Inspection:
        """Return a copy with the current states and looks, read from the store."""
        folders, plan = folders_of(self.execution.model_dump(mode="json")), self.plan
        if plan.study.looks:
            plan = without_settled(plan, self.store.studies.looks(plan.to_json()))
        return replace(self, plan=plan, states=inspect(plan, self.store, folders))

    def running(self) -> dict[str, Holder]:
        """Return the process that computes each running step, by the step's fingerprint."""
        # Only missing steps: a step that has just finished may still hold its lease.
        steps = {step.id: step.fingerprint for step in self.to_do()}
        held = holders(self.store.home / "leases")
        return {steps[name]: who for name, who in held.items() if name in steps}

    def prices(self, device: str | None = None) -> Prices:
        return prices_of(self.plan, self.states, self.execution, device)

    def to_do(self) -> Iterator[Step]:
        """Yield the steps that a run would compute, parents before children."""
        needed = needed_steps(self.plan, self.states)
        return (step for name, step in self.plan.steps.items() if name in needed)

    def expected_only(self) -> Iterator[Step]:
        """Yield the steps that this machine cannot compute because it lacks their input data."""
        steps = self.plan.expected.items()
        return (step for fingerprint, step in steps if fingerprint not in self.plan.steps)

    def beside_cells(self) -> list[Step]:
        """Return the steps that are not cells: training runs and data preparation."""
        cells = {cell.step.fingerprint for cell in self.plan.cells if cell.step}
        return [step for fingerprint, step in self.plan.steps.items() if fingerprint not in cells]


def inspect_study(
    study: str, execution: Execution, select: str = "", *, accept_plugin_change: bool = False
) -> Inspection:
    """Compile a study and look up its steps in the store.

    The only writes are cached digests of data files, and accepted plug-in changes.

    Args:
      study: name of a shipped study or of a study that ran in this home, or path of a study file.
      execution: folders of the store and the data; without data, model and plug-in folders, those
        of the study's last run count.
      select: "axis=value,..." to keep only matching cells; "" keeps all.
      accept_plugin_change: keep the results of plug-ins whose code changed without a new VERSION.
    """
    study, execution = as_last_run(study, execution)
    plan = compile_request(study, execution).plan
    store = Store(execution.home)
    folders = folders_of(execution.model_dump(mode="json"))
    if accept_plugin_change:
        check_plugin_changes(select_cells(plan, select), execution, accept=True)
    states = inspect(plan, store, folders)
    diff = compare(plan, store, states, ids_before(store, plan.study.study))
    for name in models_to_fetch(plan, execution):
        _without_weights(plan, diff.states, name)
    return Inspection(select_cells(plan, select), diff.states, store, execution, diff.orphans)


def as_json(found: Inspection, device: str | None = None) -> dict[str, Any]:
    """Return the output of `lce plan --json`: every cell and step with state, reason and price.

    Further keys are the totals, what the missing steps need (`Needs`), the changed plug-ins and
    the orphaned artifacts.

    Args:
      device: type of device to predict times for; None for this machine.
    """
    plan, prices = found.plan, found.prices(device)
    cells = []
    for cell, row in zip(plan.cells, plan.to_json()["cells"], strict=True):
        step = cell.step or cell.expected
        price = prices.of(step) if step else Price()
        cells.append({**row, **_stands(found.cell_state(cell)), **_json(price, prices)})
    shown = {cell.expected.fingerprint for cell in plan.cells if cell.expected}
    beside = [(step, found.states[step.fingerprint]) for step in found.beside_cells()]
    absent = StepState("unavailable", "its data is not on this machine")
    beside += [(s, absent) for s in found.expected_only() if s.fingerprint not in shown]
    steps = [
        {
            "kind": step.kind,
            "name": step.name,
            "fingerprint": None if state is absent else step.fingerprint,
            **_stands(state),
            **_json(prices.of(step), prices),
        }
        for step, state in beside
    ]
    return {
        "study": plan.study.study,
        "device": prices.speed.device,
        "speed": prices.speed.origin,
        "changes": {**found.change_counts(), "orphaned": len(found.orphans)},
        "corrected": prices.is_calibrated,
        "changed_plugins": found.plugin_lines(),
        **({"looks": list(looks)} if (looks := plan.study.looks) else {}),
        "match": plan.study.match,
        "to_do": _json(prices.total(found.to_do()), prices),
        "expected": _json(prices.total(found.expected_only()), prices),
        "whole": _json(prices.total(plan.steps.values()), prices),
        "needs": asdict(needs_of(plan, found.states, found.execution, prices)),
        "steps": steps,
        "cells": cells,
        "orphaned": [asdict(orphan) for orphan in found.orphans],
    }


def _without_weights(plan: StudyPlan, states: dict[str, StepState], model: str) -> None:
    for step in plan.steps.values():
        state = states[step.fingerprint]
        if step.axes.get("base_model") == model and state.state == "missing":
            reason = f"{state.reason}; weights of {model} are missing: {fetching(model)}"
            states[step.fingerprint] = replace(state, reason=reason)


def _stands(state: StepState) -> dict[str, Any]:
    return {
        "state": state.state,
        "change": state.change,
        "reason": state.reason,
        "differs": list(state.differs),
        "was": state.was,
    }


def _json(price: Price, prices: Prices) -> dict[str, Any]:
    return {
        "tokens": price.cost.tokens,
        "answer_tokens": price.cost.decoding.tokens,
        "flops": price.cost.all_flops,
        "gpu_hours": gpu_seconds(price, prices) / 3600,
        "hours": price.seconds / 3600,
        "estimated": price.estimated,
        **({} if price.error is None else {"error": price.error}),
    }
