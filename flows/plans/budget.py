"""`--budget 8gpuh`: compute as many whole blocks as the budget pays for.

A block is one base model, benchmark, length and seed over all methods, with the training they need.
Only whole blocks are computed, so that the results of all methods are comparable. Blocks are
considered seed by seed; within a seed, the shortest length of every benchmark comes first. A block
that does not fit is skipped, and later blocks that fit are still taken. Each block is priced as if
it ran alone (without sharing text with other blocks), so the total is an upper bound.
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
    """Upper limit of the time that a run may use, in hours of a device or on the clock."""

    hours: float
    unit: Unit
    """gpuh: hours of one GPU; cpuh: hours of one CPU worker; h: wall-clock hours with all slots in
    use."""

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Parse "8gpuh", "100 cpuh", "2h" or "2".

        Raises:
          SpecError: if the text has another form, or the number is not above 0.
        """
        found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-z]*)\s*", text.lower())
        unit = (found[2] or "h") if found else ""
        if not found or unit not in get_args(Unit) or not float(found[1]):
            raise SpecError(
                "--budget",
                repr(text),
                "a number of hours above 0 with gpuh, cpuh or h: 8gpuh, 100cpuh, 1.5h",
                "write the number and the unit without anything else",
            )
        return cls(float(found[1]), unit)  # type: ignore[arg-type] # checked right above

    def __str__(self) -> str:
        return f"{self.hours:g}{self.unit}"


@dataclass(frozen=True)
class Block:
    """The cells of one base model, benchmark, length and seed, over all methods and tasks."""

    base_model: str
    benchmark: str
    eval_length: int
    seed: int
    cells: tuple[PlannedCell, ...]

    def __str__(self) -> str:
        return f"{self.base_model} {self.benchmark} at {self.eval_length}, seed {self.seed}"


@dataclass(frozen=True)
class Chosen:
    """What a run within a budget computes: whole blocks, and the plan reduced to these."""

    budget: Budget
    plan: StudyPlan
    """The plan with the taken blocks, the blocks that are already done, and all their steps."""
    taken: tuple[Block, ...]
    left_out: tuple[Block, ...]
    price: Price
    hours: float
    """Upper bound of the taken blocks' cost, in hours of the budget's unit."""
    device: str

    def lines(self) -> Iterator[str]:
        """Describe the blocks that are taken and left out, in lines of at most 80 columns."""
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
            told = "; ".join(
                f"{', '.join(map(str, at))} of seed{'s'[: len(seeds) > 1]}"
                f" {', '.join(map(str, seeds))}"
                for seeds, at in lengths.items()
            )
            yield from _wrapped(f"  left out: {f'{model} ' * several}{benchmark} at {told}")
        if waiting := sum(map(self.plan.waits_for_data, self.plan.cells)):
            yield from _wrapped(f"  {waiting:,} cells wait for data that are not here: in no block")

    def _of(self) -> str:
        if self.budget.unit == "h":
            return "on the clock, all slots in use"
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
    """Choose the blocks that a budget pays for, in the order of the module's docstring.

    The choice is deterministic: it depends only on the store and the request.

    Args:
      plan: the wanted cells and steps.
      states: state of each step, by fingerprint.
      execution: its number of slots turns device hours into wall-clock hours.
      text: the budget as given.
      device: the device that is priced; None for this machine's. A budget in gpuh is priced for a
        GPU even where the device is a CPU.

    Raises:
      SpecError: if the text is no budget, or too small for any block; names the cheapest block's
        price.
    """
    budget = Budget.parse(text)
    device = "cpu" if budget.unit == "cpuh" else device or device_here(execution)
    if budget.unit == "gpuh" and device not in DEVICE_TYPES:
        device = GPU_HOURS_OF
    till = _Till(plan, states, prices_of(plan, states, execution, device), budget, execution)
    taken: list[Block] = []
    left_out: list[Block] = []
    free: list[PlannedCell] = []
    spent = 0.0
    for block in _blocks(plan):
        if not till.to_do(block):
            free += block.cells
        elif spent + (hours := till.hours(block)) <= budget.hours:
            spent += hours
            till.pay(block)
            taken.append(block)
        else:
            left_out.append(block)
    if left_out and not taken:
        cheapest = min(left_out, key=till.hours)
        raise SpecError(
            "--budget",
            f"{budget}, too little for any block",
            f"at least {_rounded_up(till.hours(cheapest))}{budget.unit}, the price of the cheapest:"
            f" {cheapest}, over all methods with the training they need",
            "raise it, or choose less with --select",
        )
    chosen = {id(cell) for cell in (*free, *(c for block in taken for c in block.cells))}
    part = with_cells(plan, [cell for cell in plan.cells if id(cell) in chosen])
    return Chosen(budget, part, tuple(taken), tuple(left_out), till.price(taken), spent, device)


class _Till:
    """Prices blocks one after another: a step that several blocks need is paid for once."""

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

    def to_do(self, block: Block) -> bool:
        """Return True if any step that the block needs is missing in the store."""
        return bool(self._costs(block))

    def hours(self, block: Block) -> float:
        """Return the hours of the block's unpaid steps, priced as if the block ran alone."""
        costs = self._costs(block).items()
        return sum(hours for fingerprint, hours in costs if fingerprint not in self._paid)

    def pay(self, block: Block) -> None:
        """Mark the block's steps as paid: shared ones, such as training, cost no later block."""
        self._paid |= self._costs(block).keys()

    def price(self, blocks: Sequence[Block]) -> Price:
        """Return the total price of `blocks`, with its error."""
        steps = {p: self._plan.steps[p] for block in blocks for p in self._costs(block)}
        return self._prices.total(steps.values())

    def _costs(self, block: Block) -> dict[str, float]:
        """Return the hours of each missing step that the block needs, by fingerprint.

        Hours are in the budget's unit.
        """
        if id(block) not in self._known:
            part = with_cells(self._plan, block.cells)
            steps = [s for p, s in part.steps.items() if self._states[p].state == "missing"]
            alone, execution = self._prices.alone(part), self._execution
            if self._on_clock:
                told = alone.predicted(steps, execution.processes)
                places = execution.slots
                seconds = {p: one.seconds * one.slots / places for p, one in told.items()}
            else:
                seconds = {step.fingerprint: alone.of(step).seconds for step in steps}
            self._known[id(block)] = {p: one / 3600 for p, one in seconds.items()}
        return self._known[id(block)]


def _blocks(plan: StudyPlan) -> list[Block]:
    """Return all blocks in the order in which they are considered."""
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
