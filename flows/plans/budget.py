"""`--budget 8gpuh`: restrict a run to the blocks that its time budget pays for.

A block is the evaluation of all methods with one base model, benchmark, length and seed, and the
training that it requires. Only whole blocks are computed, so that the results of all methods are
comparable. Blocks are considered seed by seed; within a seed, the shortest length of every
benchmark comes first. A block that exceeds the remaining budget is skipped, and later, cheaper
blocks may still be chosen. A block is priced as if it ran alone, without reusing passes over text
that other blocks read as well. The total is therefore an upper bound.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

from flows.plans.amounts import GPU_HOURS_OF, error_of
from flows.plans.pricing import Price, Prices, device_here, prices_of
from flows.selection import with_cells
from lce_core import formats
from lce_core.errors import SpecError
from lce_core.execution import Execution
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.pricing.device_types import DEVICE_TYPES
from lce_core.study.progress import StepState
from lce_core.terminal import WIDTH

Unit = Literal["gpuh", "cpuh", "h"]


@dataclass(frozen=True)
class Budget:
    """Time limit of a run, in device hours or wall-clock hours."""

    hours: float
    unit: Unit
    """gpuh: hours of one GPU. cpuh: hours of one CPU worker. h: wall-clock hours, if all slots of
    the machine compute."""

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Parse "8gpuh", "100 cpuh", "2h" or "2" (hours).

        Raises:
          SpecError: if the text is no number of hours above 0 with one of these units.
        """
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
    """The blocks that a run computes within its budget, and the plan reduced to these blocks."""

    budget: Budget
    plan: StudyPlan
    """The plan reduced to the taken blocks and the blocks that are already done."""
    taken: tuple[Block, ...]
    left_out: tuple[Block, ...]
    price: Price
    """Predicted cost of the taken blocks as a part of the whole plan. Only its relative error is
    shown; `hours` is the upper bound."""
    hours: float
    """Upper bound of the taken blocks' cost, in the budget's unit."""
    device: str
    """Device type for which the blocks were priced: "cpu", or a GPU such as "h100"."""

    def lines(self) -> Iterator[str]:
        """Yield lines for the user, of at most 80 characters: the chosen and the skipped blocks."""
        cells, all_blocks = sum(len(b.cells) for b in self.taken), len(self.taken + self.left_out)
        yield from _wrapped(
            f"budget {self.budget}: {len(self.taken)} of {all_blocks} blocks to do,"
            f" {cells:,} cells over all methods, at most {formats.three_digits(self.hours)}"
            f" {self.budget.unit}{error_of(self.price)} ({self._of()})"
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
                f"{', '.join(map(str, at))} of seed{'s'[: len(seeds) > 1]}"
                f" {', '.join(map(str, seeds))}"
                for seeds, at in lengths.items()
            )
            yield from _wrapped(
                f"  left out: {f'{model} ' * several}{benchmark} at {lengths_and_seeds}"
            )
        if waiting := sum(map(self.plan.waits_for_data, self.plan.cells)):
            yield from _wrapped(f"  {waiting:,} cells are in no block: their data is missing here")

    def _of(self) -> str:
        if self.budget.unit == "h":
            return "wall-clock time, all slots in use"
        return f"hours of one {'CPU worker' if self.device == 'cpu' else self.device.upper()}"

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
    """Choose the blocks that a time budget pays for, in the order that the module explains.

    The choice is deterministic: it depends only on the store and the request.

    Args:
      plan: the plan of the selected cells.
      states: state of each step in the store, by fingerprint.
      execution: settings of the computation; the number of slots converts device hours to
        wall-clock hours.
      text: the budget as the user wrote it, such as "8gpuh".
      device: device type for which blocks are priced, such as "h100"; None for this machine's. A
        budget in gpuh is always priced for a GPU; for an A100 where this machine has none.

    Raises:
      SpecError: if the text is no budget, or the budget is too small for any block; the error
        gives the cheapest block's price.
    """
    budget = Budget.parse(text)
    device = "cpu" if budget.unit == "cpuh" else device or device_here(execution)
    if budget.unit == "gpuh" and device not in DEVICE_TYPES:
        device = GPU_HOURS_OF
    costs = _BlockCosts(plan, states, prices_of(plan, states, execution, device), budget, execution)
    taken: list[Block] = []
    left_out: list[Block] = []
    free: list[PlannedCell] = []
    spent = 0.0
    for block in _blocks(plan):
        if not costs.has_missing_steps(block):
            free += block.cells
        elif spent + (hours := costs.unpaid_hours(block)) <= budget.hours:
            spent += hours
            costs.pay(block)
            taken.append(block)
        else:
            left_out.append(block)
    if left_out and not taken:
        cheapest = min(left_out, key=costs.unpaid_hours)
        least = f"{_rounded_up(costs.unpaid_hours(cheapest))}{budget.unit}"
        raise SpecError(
            "--budget",
            f"{budget}, too little for any block",
            f"at least {least}, the price of the cheapest:"
            f" {cheapest}, over all methods with the training they need",
            "raise it, or choose less with --select",
        )
    chosen = {id(cell) for cell in (*free, *(c for block in taken for c in block.cells))}
    part = with_cells(plan, [cell for cell in plan.cells if id(cell) in chosen])
    return Chosen(budget, part, tuple(taken), tuple(left_out), costs.price(taken), spent, device)


class _BlockCosts:
    """Costs of blocks. A step that several blocks require is paid with the first chosen block."""

    def __init__(
        self,
        plan: StudyPlan,
        states: Mapping[str, StepState],
        prices: Prices,
        budget: Budget,
        execution: Execution,
    ) -> None:
        self._plan, self._states, self._prices = plan, states, prices
        self._on_clock, self._execution = budget.unit == "h", execution
        self._paid: set[str] = set()
        self._known: dict[int, dict[str, float]] = {}

    def has_missing_steps(self, block: Block) -> bool:
        return bool(self._costs(block))

    def unpaid_hours(self, block: Block) -> float:
        """Return the hours of the block's unpaid steps, priced as if the block ran alone."""
        costs = self._costs(block).items()
        return sum(hours for fingerprint, hours in costs if fingerprint not in self._paid)

    def pay(self, block: Block) -> None:
        """Mark the block's steps as paid, so that later blocks get shared training for free."""
        self._paid |= self._costs(block).keys()

    def price(self, blocks: Sequence[Block]) -> Price:
        """Return the total price of `blocks` as a part of the whole plan."""
        steps = {p: self._plan.steps[p] for block in blocks for p in self._costs(block)}
        return self._prices.total(steps.values())

    def _costs(self, block: Block) -> dict[str, float]:
        """Return the hours, in the budget's unit, of each missing step of the block.

        The dict's keys are fingerprints. The steps include the training that the block requires.
        """
        if id(block) not in self._known:
            part = with_cells(self._plan, block.cells)
            steps = [s for p, s in part.steps.items() if self._states[p].state == "missing"]
            alone, execution = self._prices.alone(part), self._execution
            if self._on_clock:
                predicted = alone.predicted(steps, execution.processes)
                slots = execution.slots
                seconds = {p: one.seconds * one.slots / slots for p, one in predicted.items()}
            else:
                seconds = {step.fingerprint: alone.of(step).seconds for step in steps}
            self._known[id(block)] = {p: one / 3600 for p, one in seconds.items()}
        return self._known[id(block)]


def _blocks(plan: StudyPlan) -> list[Block]:
    cells: dict[tuple[str, str, int, int], list[PlannedCell]] = {}
    for cell in plan.cells:
        key = (cell.base_model, cell.benchmark, cell.eval_length, cell.seed)
        cells.setdefault(key, []).append(cell)
    lengths: dict[str, set[int]] = {}
    for _, benchmark, length, _ in cells:
        lengths.setdefault(benchmark, set()).add(length)
    rank = {
        (name, length): number
        for name, at in lengths.items()
        for number, length in enumerate(sorted(at))
    }
    seeds = {seed: number for number, seed in enumerate(plan.study.seeds)}
    blocks = [Block(*key, tuple(own)) for key, own in cells.items()]
    # `sorted` is stable, so benchmarks and base models keep the study's order.
    return sorted(blocks, key=lambda b: (seeds[b.seed], rank[b.benchmark, b.eval_length]))


def _json(block: Block) -> dict[str, Any]:
    named = ("base_model", "benchmark", "eval_length", "seed")
    return {**{name: getattr(block, name) for name in named}, "cells": len(block.cells)}


def _rounded_up(hours: float) -> str:
    """Format with three digits, rounded up so that the printed price is always enough."""
    return f"{Decimal(f'{hours * 1.005:.2e}'):f}"


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
