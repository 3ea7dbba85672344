"""What `lce plan` and `lce status` show: every cell's state, its reason and its cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.request import compile_request
from lce_core.execution import Execution
from lce_core.store.artifacts import Store, folders_of
from lce_core.store.lease import is_held
from lce_core.study.cost import gpu_hours
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.progress import State, StepState, explain, inspect
from lce_core.study.step_cost import StepCost
from lce_core.study.step_kinds import step_cost

STATES: tuple[State, ...] = ("done", "to do", "failed", "unavailable")


@dataclass(frozen=True)
class Inspection:
    """A plan, and where each of its steps stands in the store."""

    plan: StudyPlan
    states: dict[str, StepState]
    store: Store

    def cell_state(self, cell: PlannedCell) -> StepState:
        """The state of one cell; cells without a step cannot be."""
        if cell.step is None:
            return StepState("unavailable", cell.unavailable or "")
        return self.states[cell.step.fingerprint]


def inspect_study(study: str, execution: Execution) -> Inspection:
    """Compiles a study and looks its steps up; writes nothing but what is known of files."""
    plan = compile_request(study, execution).plan
    store = Store(execution.home)
    folders = folders_of(execution.model_dump(mode="json"))
    states = explain(plan, store, inspect(plan, store, folders))
    return Inspection(plan, states, store)


def as_json(found: Inspection) -> dict[str, Any]:
    """Everything, for programs: cells with state, reason and cost; trainings; totals."""
    cells = []
    shown = {cell.step.fingerprint for cell in found.plan.cells if cell.step}
    for cell, row in zip(found.plan.cells, found.plan.to_json()["cells"], strict=True):
        state = found.cell_state(cell)
        cost = step_cost(cell.step) if cell.step else StepCost()
        cells.append({**row, "state": state.state, "reason": state.reason, **_cost_json(cost)})
    steps = [
        {
            "kind": step.kind,
            "name": step.name,
            "fingerprint": step.fingerprint,
            "state": found.states[step.fingerprint].state,
            "reason": found.states[step.fingerprint].reason,
            **_cost_json(step_cost(step)),
        }
        for step in found.plan.steps.values()
        if step.fingerprint not in shown
    ]
    total = _cost_json(_cost_to_do(found))
    return {"study": found.plan.study.study, "to_do": total, "steps": steps, "cells": cells}


def show(found: Inspection, *, every_cell: bool) -> None:
    """Prints states by method, the reasons, and what a run would cost."""
    console = Console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in (*_TEXT, *STATES, "tokens"):
        table.add_column(column, justify="left" if column in _TEXT else "right")
    for name, counts, cost in _by_method(found):
        table.add_row(*name, *(str(counts[state] or "-") for state in STATES), _short(cost.tokens))
    console.print(table)
    for reason, count in _reasons(found).most_common(12):
        console.print(f"{count:5} x {reason}", markup=False, highlight=False, soft_wrap=True)
    cost = _cost_to_do(found)
    if cost.tokens:
        console.print(
            f"to do, with training: {_short(cost.tokens)} tokens, {cost.flops:.3g} FLOPs,"
            f" {gpu_hours(cost.flops):.3g} A100-hours",
            highlight=False,
        )
    if every_cell:
        for cell in found.plan.cells:
            state = found.cell_state(cell)
            where = f"s{cell.seed} {cell.benchmark} {cell.task} {cell.eval_length}"
            label = cell.method if cell.frozen else f"{cell.method}-tuned"
            line = f"{state.state:<11} {cell.base_model} {label} {where}  {state.reason}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def show_status(found: Inspection) -> None:
    """Prints how many cells are in which state, what runs now, and what failed."""
    console = Console()
    counts = Counter(found.cell_state(cell).state for cell in found.plan.cells)
    shown = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    console.print(f"{found.plan.study.study}: {shown}", highlight=False)
    for step in found.plan.steps.values():
        if is_held(found.store.home / "leases", step.short):
            console.print(f"  running  {step.name}", highlight=False)
    for step in found.plan.steps.values():
        state = found.states[step.fingerprint]
        parents = {found.states[parent].state for parent in step.parents.values()}
        if state.state == "failed" and "failed" not in parents:
            line = f"  failed   {step.kind} {step.name}: {state.reason}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


_TEXT = ("base model", "method", "weights")


def _by_method(found: Inspection) -> list[tuple[tuple[str, str, str], Counter[State], StepCost]]:
    rows: dict[tuple[str, str, str], tuple[Counter[State], list[StepCost]]] = {}
    for cell in found.plan.cells:
        name = (cell.base_model, cell.method, "frozen" if cell.frozen else "tuned")
        counts, costs = rows.setdefault(name, (Counter(), []))
        state = found.cell_state(cell).state
        counts[state] += 1
        if state == "to do" and cell.step:
            costs.append(step_cost(cell.step))
    return [(name, counts, sum(costs, StepCost())) for name, (counts, costs) in rows.items()]


def _reasons(found: Inspection) -> Counter[str]:
    states = (found.cell_state(cell) for cell in found.plan.cells)
    return Counter(f"{state.state}: {state.reason}" for state in states if state.reason)


def _cost_to_do(found: Inspection) -> StepCost:
    steps = found.plan.steps.values()
    to_do = (step for step in steps if found.states[step.fingerprint].state == "to do")
    return sum((step_cost(step) for step in to_do), StepCost())


def _cost_json(cost: StepCost) -> dict[str, float]:
    return {"tokens": cost.tokens, "flops": cost.flops, "gpu_hours": gpu_hours(cost.flops)}


def _short(tokens: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if tokens >= size:
            return f"{tokens / size:.1f}{unit}"
    return str(tokens)
