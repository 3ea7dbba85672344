"""Submitting units as their parents finish, never more at a time than there are slots."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prefect.futures import PrefectFuture

from flows.display import Display
from lce_core.errors import StepsFailedError, StoreError
from lce_core.execution import Execution
from lce_core.study.step_kinds import kind_named
from lce_core.study.units import Unit, dependents
from tasks.units import unit_task
from tasks.workers import pool_for

REFRESH_SECONDS = 0.5

Ended = queue.SimpleQueue[tuple[Unit, PrefectFuture[Any]]]


@dataclass
class Tally:
    """What became of the units."""

    failures: dict[str, str] = field(default_factory=dict)
    """Reason of each unit that failed, by unit name."""
    blocked: list[str] = field(default_factory=list)
    """Units that could not run because others failed."""
    disk_full: str | None = None


def run_units(
    units: Sequence[Unit], done: set[str], execution: Execution, display: Display
) -> Tally:
    """Runs all units in dependency order; failures stop only what depends on them.

    Args:
      units: in the order in which they should start.
      done: fingerprints of the steps that are done already; grows as units finish.
      execution: how to compute.
      display: told of every start, end and half second.
    """
    tally, waiting, running = Tally(), list(units), 0
    ended: Ended = queue.SimpleQueue()
    limit = len(pool_for(execution).slots) if units else 0
    settings = execution.model_dump(mode="json")
    while running or waiting:
        while running < limit and (unit := _next(waiting, done)) and not tally.disk_full:
            waiting.remove(unit)
            task = unit_task(kind_named(unit.kind).submitted_as)
            task = task.with_options(retries=execution.max_attempts - 1)
            future = task.submit(unit.to_json(), settings)
            future.add_done_callback(partial(_book, ended, unit))
            running += 1
        if not running:
            if tally.disk_full:
                return tally
            raise StoreError(
                waiting[0].name,
                "steps to wait for that nothing computes",
                "every step's parents done or in the plan",
                "run the study again, which looks anew at what is there",
            )
        try:
            unit, future = ended.get(timeout=REFRESH_SECONDS)
        except queue.Empty:
            display.refresh()
            continue
        running -= 1
        lost = _settle(unit, future, done, tally)
        for blocked in dependents(waiting, lost):
            waiting.remove(blocked)
            if unit.name in tally.failures:
                tally.blocked.append(blocked.name)
            display.finish(blocked)
        display.finish(unit)
    return tally


def _book(ended: Ended, unit: Unit, future: PrefectFuture[Any]) -> None:
    ended.put((unit, future))


def _settle(unit: Unit, future: PrefectFuture[Any], done: set[str], tally: Tally) -> set[str]:
    """Books a finished unit; returns the fingerprints of its steps that failed."""
    answer = future.result(raise_on_failure=False)
    steps = {step.fingerprint for step in unit.steps}
    if not isinstance(answer, BaseException):
        done |= steps
        return set()
    lost = steps
    if isinstance(answer, StepsFailedError):
        lost = {event["fingerprint"] for event in answer.failed}
        full = [event for event in answer.failed if event["class"] == "disk_full"]
        tally.disk_full = tally.disk_full or (full[0]["message"] if full else None)
    done |= steps - lost
    if not _unavailable(answer):  # a cell that cannot be is a row with its reason, no failure
        reason = answer.reason if isinstance(answer, StepsFailedError) else str(answer)
        tally.failures[unit.name] = reason
    return lost


def _unavailable(answer: BaseException) -> bool:
    failed = answer.failed if isinstance(answer, StepsFailedError) else ()
    return bool(failed) and all(event["class"] == "unavailable" for event in failed)


def _next(waiting: Sequence[Unit], done: set[str]) -> Unit | None:
    return next((unit for unit in waiting if unit.needs <= done), None)
