"""Work queue of a run, shared with other processes that compute in the same store.

While a process computes a step, it holds the step's lease, and the others treat the step's whole
unit as claimed. A run first claims unclaimed units, in the given order. If none is left, it claims
the steps that no process is computing of a divisible unit that another process has claimed.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lce_core.store.artifacts import Store
from lce_core.store.lease import is_held
from lce_core.store.parts import folders_asking
from lce_core.store.records import Record
from lce_core.store.steps import Listing, Step
from lce_core.study.progress import StepState, given_up
from lce_core.study.units import Unit

POLL_SECONDS = 1.0
"""Shortest pause between polls for steps that other processes have finished or given up."""
MAX_RETRY_SECONDS = 8.0
"""Longest wait before retrying a step whose lease another process holds."""
_POLL_SHARE = 20
"""The poll interval is at least 20 times a poll's duration: polling takes at most 5 % of time."""


@dataclass(frozen=True)
class Claim:
    """A unit that this run will now compute: the whole unit, or only its unclaimed steps."""

    unit: Unit
    shared: bool
    """True if others compute the rest of the unit."""


@dataclass(frozen=True)
class EndedElsewhere:
    """A queued step that another process has finished, or has given up after a failure."""

    unit: Unit
    """The unit in the queue."""
    step: Step
    given_up: StepState | None
    """Why the step failed or is unavailable; None if it is done."""


class WorkQueue:
    """The units that this run has not started yet, in starting order.

    If another process gave up a step because its input is missing, this run gives up the step too,
    but only if that process used the same `folders` of models and data.
    """

    def __init__(
        self, units: Sequence[Unit], done: set[str], store: Store, folders: Mapping[str, str]
    ) -> None:
        self.waiting = list(units)
        self.done = set(done)
        self.num_held = 0
        """Ready units with steps that other processes held at the last `claim`."""
        self._store, self._folders = store, folders
        listing = store.listing()
        # A step with an artifact is in the queue only if the artifact is damaged or lacks weights.
        self._damaged = {
            step.fingerprint
            for unit in units
            for step in unit.steps
            if listing.find(step.fingerprint, step.kind)
        }
        self._attempts = store.failures.attempts()
        self._retries: dict[str, tuple[float, float]] = {}
        """Time (monotonic) of the next retry of a held step, and that wait in seconds, by step
        id."""
        self._next_poll = time.monotonic() + POLL_SECONDS

    def claim(self, fits: Callable[[Unit], bool]) -> Claim | None:
        """Remove and return the first unit that can start now.

        A unit can start if all steps that it needs are done, no process holds a lease of its steps,
        and `fits` finds a free slot. If no unit can start, take the free steps of the first
        divisible unit of which other processes hold some. None also if `poll` must run first,
        because another process has finished or given up a step of the unit.
        """
        shared, self.num_held = None, 0
        # List the leases once, and read only those of the steps below, not all of them.
        names = {path.stem for path in (self._store.home / "leases").glob("*.json")}
        for place, unit in enumerate(self.waiting):
            if not unit.needs <= self.done:
                continue
            free = tuple(
                step
                for step in unit.steps
                if time.monotonic() >= self._retries.get(step.id, (0.0, 0.0))[0]
                and (step.id not in names or self._is_free(step))
            )
            if len(free) < len(unit.steps):
                self.num_held += 1
                if shared is None and free and unit.is_divisible and fits(unit):
                    shared = place, free
            elif fits(unit):
                if self._has_changed(unit):
                    self._next_poll = 0.0
                    return None
                del self.waiting[place]
                return Claim(unit, shared=False)
        if shared is None:
            return None
        place, free = shared
        unit = self.waiting[place]
        rest = tuple(step for step in unit.steps if step not in free)
        self.waiting[place] = replace(unit, steps=rest)
        return Claim(replace(unit, steps=free), shared=True)

    def in_parts(self, running: Iterable[Unit]) -> Iterator[tuple[Unit, Step, list[bool]]]:
        """Yield each step with an unclaimed part: unit, step, and True per claimed unfinished part.

        Searches units that this run computes (`running`) and the queue, which others may compute.
        """
        asking = folders_asking(self._store.home)
        for unit in (*running, *self.waiting) if asking else ():
            for step in unit.steps:
                if step.id not in asking:
                    continue
                left = list(self._store.parts(step).left().values())
                if not all(left):
                    yield unit, step, left

    def put_back(self, unit: Unit, held: Collection[str]) -> None:
        """Put a unit's steps that other processes hold back at the front of the queue.

        The wait before retrying a step doubles each time, up to `MAX_RETRY_SECONDS`. A step can
        stay held for long: the lease of a process that died on another host looks alive until its
        heartbeat expires.
        """
        steps = tuple(step for step in unit.steps if step.fingerprint in held)
        self.waiting.insert(0, replace(unit, steps=steps))
        for step in steps:
            seconds = min(MAX_RETRY_SECONDS, 2 * self._retries.get(step.id, (0.0, 0.1))[1])
            self._retries[step.id] = (time.monotonic() + seconds, seconds)

    def drop(self, unit: Unit) -> None:
        self.waiting = [other for other in self.waiting if other is not unit]

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next_poll

    def poll(self) -> list[EndedElsewhere]:
        started = time.monotonic()
        listing, attempts = self._store.listing(), self._store.failures.attempts()
        failed = {step_id for step_id, number in attempts.items() if self._is_new(step_id, number)}
        found: list[EndedElsewhere] = []
        waiting: list[Unit] = []
        for unit in self.waiting:
            ended = list(self._ended(unit, listing, failed))
            removed = {one.step.fingerprint for one in ended}
            self.done.update(one.step.fingerprint for one in ended if one.given_up is None)
            rest = tuple(step for step in unit.steps if step.fingerprint not in removed)
            if rest:
                waiting.append(replace(unit, steps=rest) if ended else unit)
            found += ended
        self.waiting = waiting
        took = time.monotonic() - started
        self._next_poll = started + max(POLL_SECONDS, _POLL_SHARE * took)
        return found

    def _is_free(self, step: Step) -> bool:
        try:
            return not is_held(self._store.home / "leases", step.id)
        except OSError:  # the process that computes the step reports errors of the disk
            return True

    def _has_changed(self, unit: Unit) -> bool:
        """Return True if another process finished or gave up a step since the last `poll`.

        Checks only the folders and failure files of the unit's steps, without listing the store.
        """
        for step in unit.steps:
            if step.fingerprint not in self._damaged and self._store.named(step).is_dir():
                return True
            failure = self._store.failures.of(step)
            is_new = failure and self._is_new(step.id, failure["attempts"])
            if failure and is_new and given_up(failure, self._folders):
                return True
        return False

    def _ended(self, unit: Unit, listing: Listing, failed: set[str]) -> Iterator[EndedElsewhere]:
        for step in unit.steps:
            if listing.find(step.fingerprint, step.kind):
                if self._is_stored(step, listing):
                    yield EndedElsewhere(unit, step, None)
                    continue
                self._damaged.add(step.fingerprint)
            if step.id in failed:
                failure = self._store.failures.of(step)
                if failure and (state := given_up(failure, self._folders)):
                    yield EndedElsewhere(unit, step, state)

    def _is_stored(self, step: Step, listing: Listing) -> bool:
        if step.fingerprint in self._damaged:
            return self._store.record(step, listing) is not None
        # Another process committed the artifact moments ago by one rename, so skip the check of its
        # digests, which takes long for gigabytes of weights.
        try:
            folder = self._store.path(step, listing)
        except OSError:  # on a shared disk, while another host replaces the folder
            return False
        record = Record.find(folder)
        # `lce import` adds trainings without their weights, from which no cell can be computed.
        if record is None or record.has_weights_elsewhere(folder):
            return False
        return record.fingerprint == step.fingerprint

    def _is_new(self, step_id: str, attempts: int) -> bool:
        return attempts > self._attempts.get(step_id, 0)
