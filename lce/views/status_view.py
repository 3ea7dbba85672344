"""Output of `lce status` and `lce watch`: cells by state, time left, running steps, failures."""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any, Literal

from rich.console import Console
from rich.live import Live
from rich.text import Text

from flows.plans.pricing import Prices, time_left
from flows.terminal import Terminal, titled_grids
from lce.views.planning import Inspection
from lce_core import formats
from lce_core.errors import SpecError
from lce_core.store.lease import Holder
from lce_core.store.steps import Step
from lce_core.study.pricing.calibration import Running
from lce_core.study.progress import Change
from lce_core.study.states import STATES, GroupState, group_state
from lce_core.study.variants import variant_label
from lce_core.terminal import WIDTH

REFRESH_SECONDS = 2.0
PRICE_SECONDS = 30.0
"""Interval at which `watch` corrects the predicted time left by the times of finished steps. It is
long because each correction reads many records."""
LINE_SECONDS = 60.0
"""Longest time between two lines of `watch`, if the output is not a terminal."""
STUCK_SECONDS = 30.0
"""`watch` ends when only failed steps are left and no step ran for this time. This is longer than a
run pauses before it retries a failed step (at most 10 s with the default of three attempts)."""
_MOST_FAILURES = 12
_REST_PER_POLL = 5
"""Sleep at least 5 times the duration of a poll, so that `watch` uses a sixth of a core at most."""
SIGNS: dict[GroupState, str] = {
    "done": "●", "in part": "◐", "running": "▶", "failed": "✗", "missing": "·", "unavailable": "-",
}  # fmt: skip
ASCII: dict[GroupState, str] = dict(zip(SIGNS, "#+>!.-", strict=True))

Key = tuple[str, str, str, int]
"""Base model, variant, benchmark and length in tokens."""


def show_status(found: Inspection) -> None:
    console, prices = Terminal(), found.prices()
    for line in status_lines(found, prices, found.running(), _is_unicode(console)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def status_lines(
    found: Inspection, prices: Prices, running: Mapping[str, Holder], unicode: bool
) -> Iterator[str]:
    yield from _head(found, prices, running)
    for fingerprint, holder in running.items():
        yield f"  running  {found.plan.steps[fingerprint].name}  {_where(holder)}"
    yield from grid_lines(found, running, WIDTH, SIGNS if unicode else ASCII)
    yield from dict.fromkeys(
        f"{variant_label(cell.method, cell.frozen)}: {cell.unavailable}"
        for cell in found.plan.cells
        if cell.settled
    )
    if waiting := _waiting(found):
        yield f"{waiting:,} cells have an unknown state, because their data is not on this machine"
    failures = [f"  failed   {one.kind} {one.name}: {why}" for one, why in _failed(found)]
    yield from failures[:_MOST_FAILURES]
    if (more := len(failures) - _MOST_FAILURES) > 0:
        yield f"  and {more:,} more: lce plan {found.plan.study.study}"


def grid_lines(
    found: Inspection, running: Collection[str], width: int, signs: Mapping[GroupState, str]
) -> Iterator[str]:
    """Yield a grid, a line per method and a column per benchmark and length, and its legend."""
    cells = _states(found, running)
    several = len({model for model, *_ in cells}) > 1
    rows = list(dict.fromkeys((model, variant) for model, variant, *_ in cells))
    labels = ["", *(f"{model} {variant}" if several else variant for model, variant in rows)]
    lengths: dict[str, set[int]] = {}
    for *_, benchmark, length in cells:
        lengths.setdefault(benchmark, set()).add(length)

    def column(benchmark: str, length: int) -> list[str]:
        states = (cells.get((*row, benchmark, length)) for row in rows)
        head = f"{length // 1024}k " if length % 1024 == 0 else f"{length} "
        return [head, *((signs[state] if state else "").ljust(len(head)) for state in states)]

    blocks = [
        (f"{benchmark} ", [column(benchmark, length) for length in sorted(evaluated)])
        for benchmark, evaluated in lengths.items()
    ]
    beside = max(map(len, labels)) + 2
    for lines in titled_grids([label.ljust(beside) for label in labels], blocks, width):
        yield from lines
    used = set(cells.values())
    yield "  ".join(f"{text} {sign}" for sign, text in signs.items() if sign in used)


def _states(found: Inspection, running: Collection[str]) -> dict[Key, GroupState]:
    changes: dict[Key, list[Change | Literal["running"]]] = {}
    for cell in found.plan.cells:
        variant = variant_label(cell.method, cell.frozen)
        key = (cell.base_model, variant, cell.benchmark, cell.eval_length)
        runs = cell.step is not None and cell.step.fingerprint in running
        change = "running" if runs else found.cell_state(cell).change
        changes.setdefault(key, []).append(change)
    return {key: group_state(states) for key, states in changes.items()}


def as_json(found: Inspection) -> dict[str, Any]:
    running = found.running()
    return {
        "study": found.plan.study.study,
        "cells": dict(found.change_counts()),
        "seconds_left": _seconds_left(found, found.prices(), running),
        "running": [
            {"name": found.plan.steps[fingerprint].name, **asdict(holder)}
            for fingerprint, holder in running.items()
        ],
        "failed": [
            {"kind": step.kind, "name": step.name, "reason": reason}
            for step, reason in _failed(found)
        ],
    }


def watch(found: Inspection, console: Console | None = None) -> bool:
    """Show the study until it is finished; return True if every cell is done or unavailable.

    The study is finished when no step is missing, or when every missing step failed or depends on a
    failed step and none ran for `STUCK_SECONDS`.
    """
    console = console or Terminal()
    unicode, is_live = _is_unicode(console), console.is_terminal
    prices, priced = found.prices(), time.monotonic()
    printed_counts, printed_at = "", -LINE_SECONDS
    stuck_since: float | None = None
    live = Live(console=console, auto_refresh=False, transient=True)
    with live if is_live else nullcontext():
        while True:
            began = time.monotonic()
            found = found.again()
            running = found.running()
            if began - priced > PRICE_SECONDS:
                prices, priced = found.prices(), time.monotonic()
            else:
                prices = prices.at(found.states)
            counts = str(found.change_counts())
            if is_live:
                # The lines that change come first, because rich crops what exceeds the terminal.
                lines = [*status_lines(found, prices, running, unicode)]
                shown = "\n".join(lines[: max(1, console.height - 1)])
                live.update(Text(shown, no_wrap=True, overflow="crop"), refresh=True)
            elif counts != printed_counts or began - printed_at >= LINE_SECONDS:
                printed_counts, printed_at = counts, began
                line = "; ".join(_head(found, prices, running))
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            left = {step.fingerprint for step in found.to_do()}
            if left and (running or left - _lost(found)):
                stuck_since = None
            elif left:
                stuck_since = stuck_since or time.monotonic()
            if not left or (stuck_since and time.monotonic() - stuck_since > STUCK_SECONDS):
                break
            time.sleep(max(REFRESH_SECONDS, _REST_PER_POLL * (time.monotonic() - began)))
    if waiting := _waiting(found):
        raise SpecError(
            f"study {found.plan.study.study}",
            f"{waiting:,} cells of unknown state, because their data is not on this machine",
            "the data folders with which the study ran",
            "add the same --data-folder options as to `lce run`",
        )
    for line in status_lines(found, prices, running, unicode):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return found.change_counts().keys() <= {"done", "unavailable"}


def _lost(found: Inspection) -> set[str]:
    lost: set[str] = set()
    for fingerprint, step in found.plan.steps.items():
        is_failed = found.states[fingerprint].change == "failed"
        if is_failed or lost.intersection(step.parents.values()):
            lost.add(fingerprint)
    return lost


def _waiting(found: Inspection) -> int:
    return sum(map(found.plan.waits_for_data, found.plan.cells))


def _head(found: Inspection, prices: Prices, running: Mapping[str, Holder]) -> Iterator[str]:
    counts = Counter(found.cell_state(cell).state for cell in found.plan.cells)
    shown = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
    yield f"{found.plan.study.study}: {shown}"
    if any(True for _ in found.to_do()):
        seconds = _seconds_left(found, prices, running)
        left = f"{formats.duration(seconds)}{prices.total(found.to_do()).error_shown}"
        done = f"{counts['done']:,} of {len(found.plan.cells):,} cells"
        yield f"{done}, about {left} left on {prices.device_of(found.execution.slots)}"


def _seconds_left(found: Inspection, prices: Prices, running: Mapping[str, Holder]) -> float:
    now = time.time()
    begun = {p: Running(max(0.0, now - one.since)) for p, one in running.items() if one.since}
    return time_left(found.plan, found.states, prices, found.execution).seconds(begun)


def _where(holder: Holder) -> str:
    place = f"on {holder.host}, pid {holder.pid}"
    if holder.since is None:
        return place
    at = time.strftime("%H:%M:%S", time.localtime(holder.since))
    return f"{place}, since {at} ({formats.duration(max(0.0, time.time() - holder.since))})"


def _failed(found: Inspection) -> Iterator[tuple[Step, str]]:
    """Yield failed steps and reasons, except steps that failed because a parent failed."""
    for step in found.plan.steps.values():
        state = found.states[step.fingerprint]
        parents = {found.states[parent].state for parent in step.parents.values()}
        if state.change == "failed" and "failed" not in parents:
            yield step, state.reason


def _is_unicode(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")
