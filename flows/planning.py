"""What `lce plan` and `lce status` show: every cell's state, its reason, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.pricing import Price, Prices, prices_of, time_left
from flows.request import compile_request
from flows.selection import fetching, models_to_fetch
from lce_core.execution import Execution
from lce_core.store.artifacts import Store, folders_of
from lce_core.store.lease import is_held
from lce_core.store.steps import Step
from lce_core.study.device_types import DEVICE_TYPES
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.progress import State, StepState, explain, inspect
from lce_core.study.speed import from_data_sheet
from lce_core.study.step_cost import StepCost
from lce_core.study.step_kinds import FinetuneSpec
from lce_core.study.time_left import spoken

STATES: tuple[State, ...] = ("done", "to do", "failed", "unavailable")
GPU_HOURS_OF = "a100"
"""The GPU whose hours are given where the price is that of a CPU."""
LONG_SECONDS = 30 * 86400
"""Of one CPU, from which on a study is one for GPUs."""


@dataclass(frozen=True)
class Inspection:
    """A plan, and where each of its steps stands in the store."""

    plan: StudyPlan
    states: dict[str, StepState]
    store: Store
    execution: Execution

    def cell_state(self, cell: PlannedCell) -> StepState:
        """The state of one cell; cells without a step cannot be."""
        if cell.step is None:
            return StepState("unavailable", cell.unavailable or "")
        return self.states[cell.step.fingerprint]

    def to_do(self) -> Iterator[Step]:
        """Steps that a run would compute."""
        steps = self.plan.steps.values()
        return (step for step in steps if self.states[step.fingerprint].state == "to do")


def inspect_study(study: str, execution: Execution) -> Inspection:
    """Compiles a study and looks its steps up; writes nothing but what is known of files."""
    plan = compile_request(study, execution).plan
    store = Store(execution.home)
    folders = folders_of(execution.model_dump(mode="json"))
    states = explain(plan, store, inspect(plan, store, folders))
    for name in models_to_fetch(plan, execution):
        _without_weights(plan, states, name)
    return Inspection(plan, states, store, execution)


def as_json(found: Inspection, device: str | None = None) -> dict[str, Any]:
    """Everything, for programs: cells with state, reason and price; trainings; totals."""
    plan, prices = found.plan, prices_of(found.plan, found.states, found.execution, device)
    cells = []
    for cell, row in zip(plan.cells, plan.to_json()["cells"], strict=True):
        state, step = found.cell_state(cell), cell.step or cell.expected
        price = prices.of(step) if step else Price()
        cells.append({**row, "state": state.state, "reason": state.reason, **_json(price, prices)})
    shown = {step.fingerprint for c in plan.cells for step in (c.step, c.expected) if step}
    others = [step for step in plan.steps.values() if step.fingerprint not in shown]
    steps = [
        {
            "kind": step.kind,
            "name": step.name,
            "fingerprint": step.fingerprint,
            "state": found.states[step.fingerprint].state,
            "reason": found.states[step.fingerprint].reason,
            **_json(prices.of(step), prices),
        }
        for step in others
    ]
    steps += [
        {
            "kind": step.kind,
            "name": step.name,
            "fingerprint": None,
            "state": "unavailable",
            "reason": "its data are not here",
            **_json(prices.of(step), prices),
        }
        for step in _expected_only(plan)
        if step.fingerprint not in shown
    ]
    return {
        "study": plan.study.study,
        "device": prices.speed.device,
        "speed": prices.speed.origin,
        "to_do": _json(prices.total(found.to_do()), prices),
        "expected": _json(prices.total(_expected_only(plan)), prices),
        "steps": steps,
        "cells": cells,
    }


def show(found: Inspection, *, every_cell: bool, device: str | None = None) -> None:
    """Prints states and prices by method, the reasons, and what a run would cost."""
    console = Console()
    prices = prices_of(found.plan, found.states, found.execution, device)
    console.print(_table(found, prices))
    for reason, count in _reasons(found).most_common(12):
        console.print(f"{count:5} x {reason}", markup=False, highlight=False, soft_wrap=True)
    for line in _totals(found, prices):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if every_cell:
        for cell in found.plan.cells:
            state = found.cell_state(cell)
            where = f"s{cell.seed} {cell.benchmark} {cell.task} {cell.eval_length}"
            label = cell.method if cell.frozen else f"{cell.method}-tuned"
            line = f"{state.state:<11} {cell.base_model} {label} {where}  {state.reason}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def show_status(found: Inspection) -> None:
    """Prints how many cells are in which state, the time left, what runs now, and what failed."""
    console = Console()
    counts = Counter(found.cell_state(cell).state for cell in found.plan.cells)
    shown = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
    console.print(f"{found.plan.study.study}: {shown}", highlight=False)
    if any(True for _ in found.to_do()):
        prices, slots = prices_of(found.plan, found.states, found.execution), found.execution.slots
        seconds = time_left(found.plan, found.states, prices, found.execution).seconds({})
        console.print(
            f"{counts['done']:,} of {len(found.plan.cells):,} cells, about {spoken(seconds)} left"
            f" on {_where(prices, slots)}",
            highlight=False,
            soft_wrap=True,
        )
    for step in found.plan.steps.values():
        if is_held(found.store.home / "leases", step.short):
            console.print(f"  running  {step.name}", highlight=False)
    for step in found.plan.steps.values():
        state = found.states[step.fingerprint]
        parents = {found.states[parent].state for parent in step.parents.values()}
        if state.state == "failed" and "failed" not in parents:
            line = f"  failed   {step.kind} {step.name}: {state.reason}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


Row = tuple[str, str]
"""Base model, and method with whether it is tuned."""


def _table(found: Inspection, prices: Prices) -> Table:
    several = len(found.plan.study.base_models) > 1
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("base model",) * several + ("method",):
        table.add_column(column, overflow="fold")
    counts, costs = _by_method(found, prices)
    states = [state for state in STATES if any(count[state] for count in counts.values())]
    for column in (*states, "tokens", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    for row, count in counts.items():
        price = costs.get(row, Price())
        numbers = (f"{count[state] or '-'}" for state in states)
        table.add_row(*row[not several :], *numbers, *_priced(price, prices))
    return table


def _by_method(
    found: Inspection, prices: Prices
) -> tuple[dict[Row, Counter[State]], dict[Row, Price]]:
    """Cells by state, and the price of what is to do, training with the method included."""
    counts: dict[Row, Counter[State]] = {}
    costs: dict[Row, Price] = {}
    for cell in found.plan.cells:
        row = _row(cell.base_model, cell.method, tuned=not cell.frozen)
        counts.setdefault(row, Counter())[found.cell_state(cell).state] += 1
    for step in _priced_steps(found):
        axes = step.axes
        if axes.get("method") is not None:
            tuned = step.kind == FinetuneSpec.kind or not axes["frozen"]
            row = _row(axes["base_model"], axes["method"], tuned=tuned)
            costs[row] = costs.get(row, Price()) + prices.of(step)
    return counts, costs


def _row(base_model: str, method: str, *, tuned: bool) -> Row:
    return base_model, f"{method} tuned" if tuned else method


def _expected_only(plan: StudyPlan) -> Iterator[Step]:
    """Steps that only their data keep from being."""
    return (step for print_, step in plan.expected.items() if print_ not in plan.steps)


def _totals(found: Inspection, prices: Prices) -> Iterator[str]:
    kinds = (
        ("to do, with training", prices.total(found.to_do())),
        ("data not here, estimated", prices.total(_expected_only(found.plan))),
    )
    for name, price in kinds:
        if price.cost.tokens:
            tokens, _ = _priced(price, prices)
            flops = f"{price.cost.all_flops:.3g} FLOPs"
            yield f"{name}: {tokens} tokens, {flops}, {_time(price, prices)}"
            if price.cost.decoding.bytes:
                answers = price.cost.decoding.tokens
                alone = StepCost(decoding=price.cost.decoding)
                seconds = prices.speed.evaluation.seconds(alone)
                yield (
                    f"  of that at most {_short(answers)} tokens of answers,"
                    f" {_hours(seconds, prices)}: complete ones end earlier"
                )
    yield f"time: of {_where(prices, 1)}"
    if prices.speed.device == "cpu" and prices.total(_priced_steps(found)).seconds > LONG_SECONDS:
        yield "      --device-type a100, h100 or h200 gives GPU-hours"
    slots = found.execution.slots
    if prices.speed.device == "cpu" and slots > 1 and any(True for _ in found.to_do()):
        seconds = time_left(found.plan, found.states, prices, found.execution).seconds({})
        yield f"      {slots} workers, as many as run here, take about {spoken(seconds)}"


def _priced_steps(found: Inspection) -> Iterator[Step]:
    yield from found.to_do()
    yield from _expected_only(found.plan)


def _time(price: Price, prices: Prices) -> str:
    about = "~" * price.estimated
    if prices.speed.device in DEVICE_TYPES:
        return f"{about}{_hours(price.seconds, prices)}"
    a100 = _gpu_seconds(price, prices) / 3600
    return f"{about}{spoken(price.seconds)} ({about}{_three(a100)} A100-hours)"


def _hours(seconds: float, prices: Prices) -> str:
    if prices.speed.device in DEVICE_TYPES:
        return f"{_three(seconds / 3600)} {prices.speed.device.upper()}-hours"
    return spoken(seconds)


def _where(prices: Prices, slots: int) -> str:
    speed = prices.speed
    if speed.device in DEVICE_TYPES:
        return f"{slots} {speed.device.upper()}{'s'[: slots > 1]}, by the data sheet"
    told = {
        "measured": "as measured in steps that finished here",
        "guessed": "guessed from a timed matrix product",
    }[speed.origin]
    return f"{slots} CPU worker{'s'[: slots > 1]}, {told}"


def _three(number: float) -> str:
    """With three digits, and all of those before the point."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:.3g}"


def _without_weights(plan: StudyPlan, states: dict[str, StepState], model: str) -> None:
    for step in plan.steps.values():
        state = states[step.fingerprint]
        if step.axes.get("base_model") == model and state.state == "to do":
            reason = f"{state.reason}; weights of {model} are not here: {fetching(model)}"
            states[step.fingerprint] = StepState("to do", reason)


def _reasons(found: Inspection) -> Counter[str]:
    states = (found.cell_state(cell) for cell in found.plan.cells)
    return Counter(f"{state.state}: {state.reason}" for state in states if state.reason)


def _gpu_seconds(price: Price, prices: Prices) -> float:
    """Of the GPU that is priced, else of an A100; training and evaluation at one rate."""
    if prices.speed.device in DEVICE_TYPES:
        return price.seconds
    return from_data_sheet(DEVICE_TYPES[GPU_HOURS_OF]).evaluation.seconds(price.cost)


def _json(price: Price, prices: Prices) -> dict[str, Any]:
    return {
        "tokens": price.cost.tokens,
        "answer_tokens": price.cost.decoding.tokens,
        "flops": price.cost.all_flops,
        "gpu_hours": _gpu_seconds(price, prices) / 3600,
        "hours": price.seconds / 3600,
        "estimated": price.estimated,
    }


def _priced(price: Price, prices: Prices) -> tuple[str, str]:
    """Tokens and time of a row, of GPUs in hours."""
    about, on_gpu = "~" * price.estimated, prices.speed.device in DEVICE_TYPES
    time = f"{_three(price.seconds / 3600)} h" if on_gpu else spoken(price.seconds)
    return f"{about}{_short(price.cost.tokens)}", f"{about}{time}"


def _short(tokens: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if tokens >= size:
            return f"{tokens / size:.1f}{unit}"
    return str(tokens)
