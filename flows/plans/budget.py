"""`--budget 8gpuh`: restrict a run to the blocks that fit into a time budget.

A block is the evaluation of all methods for one base model, benchmark, length and seed, including
the training that the methods need, so that the results of all methods are comparable.

Blocks are considered seed by seed; within a seed, the shortest length of every benchmark comes
first, then the second shortest, and so on. A block that exceeds the remaining budget is skipped;
cheaper blocks after it may still be chosen. A block is priced as if it ran alone, so the total is
an upper bound: blocks that read the same text share forward passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

from flows.plans.pricing import GPU_HOURS_OF, Price, Prices, device_here, prices_of, slots_here
from flows.terminal import wrapped
from lce_core import formats
from lce_core.errors import SpecError
from lce_core.execution import Execution
from lce_core.store.steps import Step
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.pricing.speed import DEVICE_TYPES
from lce_core.study.progress import StepState, needed_steps

Unit = Literal["gpuh", "cpuh", "h"]


@dataclass(frozen=True)
class Budget:
    """Time limit of a run."""

    hours: float
    unit: Unit
    """gpuh: hours of one GPU. cpuh: of one CPU worker. h: wall-clock hours with all slots busy."""

    @classmethod
    def parse(cls, text: str) -> Budget:
        found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-z]*)\s*", text.lower())
        unit = (found[2] or "h") if found else ""
        if not found or unit not in get_args(Unit) or not float(found[1]):
            raise SpecError(
                "--budget",
                repr(text),
                "a number of hours above 0 with the unit gpuh, cpuh or h: 8gpuh, 100cpuh, 1.5h",
                "write only the number and the unit",
            )
        return cls(float(found[1]), unit)  # type: ignore[arg-type] # checked right above

    def __str__(self) -> str:
        return f"{self.hours:g}{self.unit}"

    def hours_of(
        self, steps: Sequence[Step], prices: Prices, processes: int, slots: int
    ) -> dict[str, float]:
        """Return the price of each step in hours of this unit, by fingerprint."""
        if self.unit == "h":
            predicted = prices.predicted(steps, processes)
            return {name: p.seconds * p.slots / slots / 3600 for name, p in predicted.items()}
        return {step.fingerprint: prices.of(step).seconds / 3600 for step in steps}


@dataclass(frozen=True)
class Block:
    """All cells with one base model, benchmark, length and seed: every method and every task."""

    base_model: str
    benchmark: str
    eval_length: int
    seed: int
    cells: tuple[PlannedCell, ...]

    def __str__(self) -> str:
        return f"{self.base_model} {self.benchmark} at {self.eval_length}, seed {self.seed}"


@dataclass(frozen=True)
class Chosen:
    """The blocks that fit into a budget and are therefore computed, and those that are left out."""

    budget: Budget
    plan: StudyPlan
    """Plan reduced to the cells of the `taken` blocks and of blocks that are already done."""
    taken: tuple[Block, ...]
    left_out: tuple[Block, ...]
    price: Price
    """Cost if blocks share forward passes; users see only its relative error."""
    hours: float
    """Upper bound of the cost of the `taken` blocks, in the budget's unit."""
    device: str
    """"cpu", or a GPU such as "h100"."""

    def lines(self) -> Iterator[str]:
        """Yield lines of at most 80 characters: the number of blocks to do, and those left out."""
        cells, all_blocks = sum(len(b.cells) for b in self.taken), len(self.taken + self.left_out)
        meaning = f"hours of one {'CPU worker' if self.device == 'cpu' else self.device.upper()}"
        if self.budget.unit == "h":
            meaning = "wall-clock hours with all slots in use"
        yield from wrapped(
            f"budget {self.budget}: {len(self.taken)} of {all_blocks} blocks to do,"
            f" {cells:,} cells over all methods, at most {formats.three_digits(self.hours)}"
            f" {self.budget.unit}{self.price.error_shown} ({meaning})"
        )
        names = dict.fromkeys((block.base_model, block.benchmark) for block in self.left_out)
        several = len({block.base_model for block in self.left_out}) > 1
        for model, benchmark in names:
            own = [b for b in self.left_out if (b.base_model, b.benchmark) == (model, benchmark)]
            lengths: dict[tuple[int, ...], list[int]] = {}
            for length in dict.fromkeys(block.eval_length for block in own):
                seeds = tuple(block.seed for block in own if block.eval_length == length)
                lengths.setdefault(seeds, []).append(length)
            lengths_and_seeds = "; ".join(
                f"{', '.join(map(str, left_out))} with seed{'s'[: len(seeds) > 1]}"
                f" {', '.join(map(str, seeds))}"
                for seeds, left_out in lengths.items()
            )
            yield from wrapped(
                f"  left out: {f'{model} ' * several}{benchmark} at lengths {lengths_and_seeds}"
            )
        if waiting := sum(map(self.plan.waits_for_data, self.plan.cells)):
            yield from wrapped(f"  {waiting:,} cells are not priced: their data is missing here")

    def to_json(self) -> dict[str, Any]:
        return {
            "budget": str(self.budget),
            "hours": self.hours,
            "device": self.device,
            **({} if self.price.error is None else {"error": self.price.error}),
            "taken": [_json(block) for block in self.taken],
            "left_out": [_json(block) for block in self.left_out],
        }


def within_budget(
    plan: StudyPlan,
    states: Mapping[str, StepState],
    execution: Execution,
    text: str,
    device: str | None = None,
) -> Chosen:
    """Choose the blocks that fit into the time budget `text`, such as "8gpuh".

    The choice depends only on the arguments and, through the measured times of finished steps, on
    the store. On a machine without a GPU, a budget in gpuh is priced for an A100. If several chosen
    blocks need a step, it counts only for the first.
    """
    budget = Budget.parse(text)
    device = "cpu" if budget.unit == "cpuh" else device or device_here(execution)
    if budget.unit == "gpuh" and device not in DEVICE_TYPES:
        device = GPU_HOURS_OF
    prices = prices_of(plan, states, execution, device)
    slots = slots_here(execution, device)
    taken: list[Block] = []
    left_out: list[Block] = []
    chosen: list[PlannedCell] = []
    paid: dict[str, None] = {}
    """Missing steps of the taken blocks, by fingerprint."""
    spent = 0.0
    cheapest: tuple[float, Block] | None = None
    for block in _blocks(plan):
        part = plan.with_cells(block.cells)
        needed = needed_steps(part, states)
        steps = [step for name, step in part.steps.items() if name in needed]
        alone = prices.alone(part)
        costs = budget.hours_of(steps, alone, execution.training_processes, slots)
        hours = sum(one for fingerprint, one in costs.items() if fingerprint not in paid)
        if not costs:
            chosen += block.cells
        elif spent + hours <= budget.hours:
            spent += hours
            paid |= dict.fromkeys(costs)
            taken.append(block)
            chosen += block.cells
        else:
            left_out.append(block)
            if cheapest is None or hours < cheapest[0]:
                cheapest = hours, block
    if cheapest and not taken:
        # Three digits, rounded up: a budget of this size is enough.
        least = f"{Decimal(f'{cheapest[0] * 1.005:.2e}'):f}{budget.unit}"
        raise SpecError(
            "--budget",
            f"{budget}, too little for any block of cells",
            f"at least {least}, the price of the cheapest block"
            f" ({cheapest[1]}: all methods and the training that they need)",
            "raise the budget, or reduce the blocks with --select",
        )
    kept = {id(cell) for cell in chosen}
    part = plan.with_cells([cell for cell in plan.cells if id(cell) in kept])
    price = prices.total(plan.steps[fingerprint] for fingerprint in paid)
    return Chosen(budget, part, tuple(taken), tuple(left_out), price, spent, device)


def _blocks(plan: StudyPlan) -> list[Block]:
    cells: dict[tuple[str, str, int, int], list[PlannedCell]] = {}
    for cell in plan.cells:
        key = (cell.base_model, cell.benchmark, cell.eval_length, cell.seed)
        cells.setdefault(key, []).append(cell)
    lengths: dict[str, set[int]] = {}
    for _, benchmark, length, _ in cells:
        lengths.setdefault(benchmark, set()).add(length)
    seeds, ranked = plan.study.seeds, {name: sorted(own) for name, own in lengths.items()}
    blocks = [Block(*key, tuple(own)) for key, own in cells.items()]
    # `sorted` is stable, so blocks with equal keys keep the study's order.
    return sorted(
        blocks, key=lambda b: (seeds.index(b.seed), ranked[b.benchmark].index(b.eval_length))
    )


def _json(block: Block) -> dict[str, Any]:
    named = ("base_model", "benchmark", "eval_length", "seed")
    return {**{name: getattr(block, name) for name in named}, "cells": len(block.cells)}
