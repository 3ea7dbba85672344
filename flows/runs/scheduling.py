"""The scheduler of a run: whenever a slot is free, it starts the next unit, until none is left.

The caller submits units as Prefect tasks (`flows.study`) or in threads.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol
from uuid import UUID

from lce_core.errors import ServiceError, StepsFailedError, StoreError
from lce_core.evaluation.long_cell import ASSIST_SECONDS
from lce_core.store.artifacts import Store
from lce_core.store.failures import classify, disk_full, folders_of
from lce_core.study.step_kinds import CellSpec
from lce_core.study.units import Unit, abandoned
from tasks.slots import Slot, is_training
from tasks.work_queue import Claim, EndedElsewhere, WorkQueue
from tasks.workers import Pool

REFRESH_SECONDS = 0.5
FIRST_WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 8.0
"""Poll intervals grow to this value while a run can only wait for other processes."""
HELP_AGAIN_SECONDS = 60.0
"""Pause without a new helper on a step, after a helper failed or computed no part of it."""

_STOP_SECONDS = 0.1

UnitResult = Mapping[str, Any] | BaseException
"""Result of `tasks.units.compute`, or the exception that it raised."""


Submit = Callable[[Claim, Slot, Callable[[UnitResult], None]], None]
"""Starts a unit on a slot without waiting for it; calls the function once, from any thread."""


@dataclass
class RunSummary:
    """The units of a run that were not completed, and why."""

    failures: dict[str, str] = field(default_factory=dict)
    """Reasons by unit name."""
    abandoned: list[str] = field(default_factory=list)
    """Units that did not run because of a failure (`lce_core.study.units.abandoned`)."""
    disk_full: str | None = None
    """The error message if the disk was full."""
    held: list[str] = field(default_factory=list)
    """Units that this run did not wait for, because other processes compute them."""


@dataclass
class Outcome:
    """Result or error of the flow's function. When the function has ended, exactly one is set.

    Prefect's client returns a flow's result only if the server answers.
    """

    result: dict[str, Any] | None = None
    error: BaseException | None = None
    """May be a KeyboardInterrupt."""
    flow_run: UUID | None = None
    """Id in Prefect; None if a deployment created it."""
    ended_in_prefect: str = ""
    """"cancelled" or "deleted", if a user did that in Prefect."""


class Stop(threading.Event):
    """Stops a run: no further unit starts, and running units have `grace` seconds to finish.

    A signal handler may call `set` in the thread that is waiting. The lock of a plain Event could
    then deadlock, so this class overrides Event's methods with versions that use no lock.
    """

    def __init__(self, grace: float = 0.0) -> None:
        super().__init__()
        self._grace, self._since = grace, 0.0

    def set(self) -> None:
        self._since = self._since or time.monotonic()

    def is_set(self) -> bool:
        return self._since > 0.0

    def wait(self, timeout: float | None = None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        while not self.is_set():
            left = _STOP_SECONDS if until is None else until - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, _STOP_SECONDS))
        return self.is_set()

    @property
    def is_over(self) -> bool:
        return self.is_set() and time.monotonic() - self._since >= self._grace


@dataclass
class _Running:
    unit: Unit
    slot: Slot
    predicted_end: float
    """Monotonic time."""


class Display(Protocol):
    """Interface through which the scheduler shows the progress of a run."""

    def finish(self, *units: Unit, failure: str = "") -> None:
        """Record that units ended: one, and those that will not run because of its `failure`."""

    def refresh(self) -> None:
        """Update the display, about every half second."""

    def show(self, text: str) -> None:
        """Show a text, such as a table, while the run continues."""

    def close(self) -> None:
        """Close the display. No other method is called afterwards."""


class Scheduler:
    """Runs units in dependency order; a failed unit stops only the units that depend on it.

    It waits for steps of other processes only while none of its own units runs or can start. Units
    are in the order in which they should start. The scheduler opens `pool` before it starts the
    first unit. Without `waits`, units of other processes are listed in `RunSummary.held`.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        done: set[str],
        pool: Pool,
        display: Display,
        submit: Submit,
        seconds: Mapping[str, float],
        *,
        waits: bool = True,
        stop: Stop | None = None,
    ) -> None:
        store = Store(pool.execution.home)
        folders = folders_of(pool.execution.model_dump(mode="json"))
        self._work = WorkQueue(units, done, store, folders)
        self._pool, self._display, self._submit = pool, display, submit
        self._seconds, self._waits, self._stop = seconds, waits, stop or Stop()
        self._summary = RunSummary()
        self._ended: queue.SimpleQueue[tuple[Unit, UnitResult]] = queue.SimpleQueue()
        self._running: dict[str, _Running] = {}
        self._waits_for_gpus = False
        self._next_help: dict[str, float] = {}
        """Time (monotonic) before which no helper starts on a step, by the step's id."""

    def run(self) -> RunSummary:
        """Run all units, and return the summary when all have ended or `stop` is over.

        Raises ServiceError if the workers' infrastructure failed; StoreError if the disk is full or
        read-only, or if no process computes a step that waiting units need.
        """
        try:
            return self._run()
        except OSError as error:  # even reading the leases of other processes may fail
            if classify(error) != "disk_full":
                raise
            raise disk_full(self._pool.execution.home, error.strerror or str(error)) from None

    def _run(self) -> RunSummary:
        work, wait = self._work, FIRST_WAIT_SECONDS
        while (self._running or work.waiting) and not self._stop.is_over:
            if self._start_units() or self._running:
                wait = FIRST_WAIT_SECONDS
            if not self._running:
                if self._summary.disk_full or not work.waiting or self._stop.is_set():
                    break
                if not work.num_held:
                    raise StoreError(
                        work.waiting[0].name,
                        "a parent step that is neither done nor left to do in this run",
                        "parents that are done, or that this run computes first",
                        "run the study again: the new run finds out which steps are missing now",
                    )
                if not self._waits:
                    self._summary.held = [unit.name for unit in work.waiting]
                    break
                wait = self._wait_for_others(wait)
                continue
            try:
                unit, result = self._ended.get(timeout=REFRESH_SECONDS)
            except queue.Empty:
                self._display.refresh()
                continue
            self._settle(unit, result)
        return self._summary

    def _start_units(self) -> bool:
        """Start units on all free slots; return True if one started or a poll found ended steps."""
        work, has_news = self._work, False
        while work.waiting and not self._summary.disk_full and not self._stop.is_set():
            if work.is_due:
                has_news |= self._record_ended(work.poll())
            if claim := self._next_claim():
                has_news = True
                self._start(claim, self._predicted_seconds(claim.unit))
            elif not work.is_due:
                break
        while (unit := self._helping_unit()) is not None:
            has_news = True
            self._start(Claim(unit, shared=True), ASSIST_SECONDS)
        return has_news

    def _start(self, claim: Claim, seconds: float) -> None:
        unit = claim.unit
        slot = self._pool.claim(unit.kind)
        assert slot is not None, "only this thread claims slots, after it has found a free one"
        self._running[unit.name] = _Running(unit, slot, time.monotonic() + seconds)
        self._submit(claim, slot, lambda result: self._ended.put((unit, result)))

    def _helping_unit(self) -> Unit | None:
        """Return a unit that computes free parts of another worker's long step, or None."""
        is_ending = self._summary.disk_full or self._stop.is_set()
        if is_ending or self._waits_for_gpus:
            return None
        # A pool that is not open yet has no slots to check. `_has_room` below opens it, which may
        # wait for GPUs, only once there is a step to help with.
        if self._pool.is_open and not self._pool.slots.has_room(CellSpec.kind):
            return None
        running = [one.unit for one in self._running.values()]
        own = [unit for unit in running if not unit.assists]
        for unit, step, left in self._work.in_parts(own):
            if self._next_help.get(step.id, 0.0) > time.monotonic():
                continue
            helping = sum(one.assists and step in one.steps for one in running)
            # `left` has an entry for each unfinished part: True if a worker has claimed it. One
            # claimed part belongs to the worker of the step, the others to helpers. Helpers that
            # have just started have claimed none yet, so reserve parts for them.
            reserved = max(0, helping - max(0, sum(left) - 1))
            if reserved < left.count(False) and self._has_room(CellSpec.kind):
                names = (f"{unit.name}, helper {number}" for number in count(1))
                name = next(name for name in names if name not in self._running)
                return Unit(name, unit.kind, (step,), assists=True)
        return None

    def _next_claim(self) -> Claim | None:
        now = time.monotonic()
        horizon = max((one.predicted_end - now for one in self._running.values()), default=0.0)
        self._waits_for_gpus = False

        def fits(unit: Unit) -> bool:
            if unit.name in self._running:  # this run already computes other steps of the unit
                return False
            if self._waits_for_gpus:
                return self._has_room(unit.kind) and self._predicted_seconds(unit) <= horizon
            if self._has_room(unit.kind):
                return True
            # A training run waits for its GPUs. Until these are free, start only units that finish
            # before the last running unit (backfilling).
            self._waits_for_gpus = self._pool.slots.is_crowded_out(unit.kind)
            return False

        return self._work.claim(fits)

    def _settle(self, unit: Unit, result: UnitResult) -> None:
        self._pool.slots.release(self._running.pop(unit.name).slot)
        if isinstance(result, ServiceError):  # without its cluster, no unit can be computed
            raise result
        if unit.assists:
            if isinstance(result, BaseException) or not result["computed"]:
                next_help = time.monotonic() + HELP_AGAIN_SECONDS
                self._next_help |= {step.id: next_help for step in unit.steps}
            return
        steps = {step.fingerprint for step in unit.steps}
        held: Collection[str] = ()
        lost: set[str] = set()
        if not isinstance(result, BaseException):
            held = result["held"]
        elif isinstance(result, StepsFailedError):
            held, lost = result.held, {event["fingerprint"] for event in result.failed}
            if full := [event for event in result.failed if event["class"] == "disk_full"]:
                self._summary.disk_full = self._summary.disk_full or full[0]["message"]
        else:
            lost = steps
        self._work.done |= steps - lost - set(held)
        reason = ""
        if isinstance(result, BaseException):
            reason = result.reason if isinstance(result, StepsFailedError) else str(result)
            # The catalog has a row with the reason for cells that turn out to be unavailable. They
            # do not count as failed.
            failed = result.failed if isinstance(result, StepsFailedError) else ()
            if not failed or any(event["class"] != "unavailable" for event in failed):
                self._summary.failures[unit.name] = reason
        if held:
            self._work.put_back(unit, held)
        self._finish(unit, steps - set(held), lost, reason)

    def _record_ended(self, found: Sequence[EndedElsewhere]) -> bool:
        for one in found:
            step, reason = {one.step.fingerprint}, ""
            if one.given_up is not None:
                reason = one.given_up.reason
                if one.given_up.state == "failed":
                    self._summary.failures[one.unit.name] = reason
            self._finish(one.unit, step, step if one.given_up else set(), reason)
        return bool(found)

    def _finish(self, unit: Unit, ended: set[str], lost: set[str], reason: str) -> None:
        others = abandoned(self._work.waiting, lost)
        for other in others:
            self._work.drop(other)
        if unit.name in self._summary.failures:
            self._summary.abandoned += [other.name for other in others]
        steps = tuple(step for step in unit.steps if step.fingerprint in ended)
        failure = f"{unit.name}: {reason}" if reason else ""
        self._display.finish(replace(unit, steps=steps), *others, failure=failure)

    def _wait_for_others(self, seconds: float) -> float:
        """Wait, then poll the steps of other processes; return how many seconds to wait next."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._stop.wait(min(left, REFRESH_SECONDS)):
                break
            self._display.refresh()
        if self._record_ended(self._work.poll()):
            return FIRST_WAIT_SECONDS
        return min(LONGEST_WAIT_SECONDS, 1.5 * seconds)

    def _has_room(self, kind: str) -> bool:
        """Return True if a slot for this kind of step is free.

        The first call opens the pool and may therefore wait for free GPUs.
        """
        if not self._pool.is_open:
            trains = any(is_training(unit.kind) for unit in self._work.waiting)
            self._pool.open(trains=trains, has_to_end=self._stop.wait)
        return self._pool.slots.has_room(kind)

    def _predicted_seconds(self, unit: Unit) -> float:
        return sum(self._seconds[step.fingerprint] for step in unit.steps)
