"""What is left of a run, beside others that compute in the same store.

The lease of the step that is computed marks its whole unit as taken, so nothing but the store is
shared between runs. A unit that nobody holds is taken first, in the order that is given. Only when
there is none left, the steps that are free of a unit that others hold are taken, where that pays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lce_core.store.artifacts import Store
from lce_core.store.lease import is_held
from lce_core.store.listing import Listing
from lce_core.store.parts import folders_asking
from lce_core.store.records import Record
from lce_core.store.steps import Step
from lce_core.study.progress import StepState, given_up
from lce_core.study.units import Unit

LOOK_SECONDS = 1.0
"""Least time between two looks at what others have done, while there is something to take."""
LONGEST_REST_SECONDS = 8.0
"""Of a step that somebody was found to hold, before it is tried again."""
_LOOK_SHARE = 20
"""Looks take at most one part in so many of the time."""


@dataclass(frozen=True)
class Taken:
    """Work for one slot."""

    unit: Unit
    shared: bool
    """Whether others compute the rest of it."""


@dataclass(frozen=True)
class Elsewhere:
    """A step that is no longer to do here, since other processes were through with it."""

    unit: Unit
    """Of which it was a part."""
    step: Step
    given_up: StepState | None
    """Why it cannot be; None where it is done."""


class Agenda:
    """The units that wait, and what others hold or have done of them.

    Args:
      units: to do, in the order in which they should start.
      done: fingerprints of the steps that are done.
      store: in which others compute as well.
      folders: `folders_of` the execution.
    """

    def __init__(
        self, units: Sequence[Unit], done: set[str], store: Store, folders: Mapping[str, str]
    ) -> None:
        self.waiting = list(units)
        self.done = set(done)
        self.num_held = 0
        """Units of which others held a step when `take` last went through all."""
        self._store, self._folders = store, folders
        listing = store.listing()
        # There, and to do all the same: damaged.
        self._damaged = {
            step.fingerprint
            for unit in units
            for step in unit.steps
            if listing.find(step.fingerprint, step.kind)
        }
        self._attempts = store.failures.attempts()
        self._rests: dict[str, tuple[float, float]] = {}
        """Until when a step rests that was found held, and for how long."""
        self._next_look = time.monotonic() + LOOK_SECONDS

    def take(self, fits: Callable[[Unit], bool]) -> Taken | None:
        """Takes the first unit that is ready, held by nobody and fits.

        None without one, and where a look has become due before the next can be taken.
        """
        shared, self.num_held = None, 0
        # One listing; of hundreds of leases only those on the way are read.
        names = {path.stem for path in (self._store.home / "leases").glob("*.json")}
        for place, unit in enumerate(self.waiting):
            if not unit.needs <= self.done:
                continue
            free = tuple(
                step
                for step in unit.steps
                if not self._is_resting(step) and (step.short not in names or self._is_free(step))
            )
            if len(free) < len(unit.steps):
                self.num_held += 1
                if shared is None and free and unit.is_divisible and fits(unit):
                    shared = place, free
            elif fits(unit):
                if self._has_changed(unit):
                    self._next_look = 0.0
                    return None
                del self.waiting[place]
                return Taken(unit, shared=False)
        if shared is None:
            return None
        place, free = shared
        unit = self.waiting[place]
        rest = tuple(step for step in unit.steps if step not in free)
        self.waiting[place] = replace(unit, steps=rest)
        return Taken(replace(unit, steps=free), shared=True)

    def in_parts(self, running: Iterable[Unit]) -> Iterator[tuple[Unit, Step, list[bool]]]:
        """Steps with parts that nobody computes; with their unit, and who has the parts left.

        Args:
          running: units that this run computes; others compute steps of those that wait.

        Yields:
          A unit, one of its steps, and of each part that is left whether somebody computes it.
        """
        asking = folders_asking(self._store.home)
        for unit in (*running, *self.waiting) if asking else ():
            for step in unit.steps:
                if step.short not in asking:
                    continue
                left = list(self._store.parts(step).left().values())
                if not all(left):
                    yield unit, step, left

    def put_back(self, unit: Unit, held: Collection[str]) -> None:
        """The steps of a unit with these fingerprints were found held by others.

        It rests for a moment, and longer each time: on another host a lease may look alive that
        is dead from here.
        """
        steps = tuple(step for step in unit.steps if step.fingerprint in held)
        self.waiting.insert(0, replace(unit, steps=steps))
        for step in steps:
            seconds = min(LONGEST_REST_SECONDS, 2 * self._rests.get(step.short, (0.0, 0.1))[1])
            self._rests[step.short] = (time.monotonic() + seconds, seconds)

    def drop(self, unit: Unit) -> None:
        """It waits in vain."""
        self.waiting = [other for other in self.waiting if other is not unit]

    @property
    def is_due(self) -> bool:
        """Whether it is time for a look."""
        return time.monotonic() >= self._next_look

    def look(self) -> list[Elsewhere]:
        """Finds what others have done or given up since the last look; it is to do no more."""
        begun = time.monotonic()
        listing, failed = self._store.listing(), self._failed_since()
        found: list[Elsewhere] = []
        waiting: list[Unit] = []
        for unit in self.waiting:
            ended = list(self._ended(unit, listing, failed))
            gone = {one.step.fingerprint for one in ended}
            self.done.update(one.step.fingerprint for one in ended if one.given_up is None)
            rest = tuple(step for step in unit.steps if step.fingerprint not in gone)
            if rest:
                waiting.append(replace(unit, steps=rest) if ended else unit)
            found += ended
        self.waiting = waiting
        took = time.monotonic() - begun
        self._next_look = begun + max(LOOK_SECONDS, _LOOK_SHARE * took)
        return found

    def _is_resting(self, step: Step) -> bool:
        return time.monotonic() < self._rests.get(step.short, (0.0, 0.0))[0]

    def _is_free(self, step: Step) -> bool:
        try:
            return not is_held(self._store.home / "leases", step.short)
        except OSError:  # whoever computes it takes the lease, or says what is wrong with the disk
            return True

    def _has_changed(self, unit: Unit) -> bool:
        """Whether others ended a step of the unit since the last look; asks for no listing."""
        for step in unit.steps:
            if step.fingerprint not in self._damaged and self._store.named(step).is_dir():
                return True
            failure = self._store.failures.of(step)
            is_new = failure and self._is_new(step.short, failure["attempts"])
            if failure and is_new and given_up(failure, self._folders):
                return True
        return False

    def _ended(self, unit: Unit, listing: Listing, failed: set[str]) -> Iterator[Elsewhere]:
        for step in unit.steps:
            if listing.find(step.fingerprint, step.kind):
                if self._is_there(step, listing):
                    yield Elsewhere(unit, step, None)
                else:
                    self._damaged.add(step.fingerprint)
            elif step.short in failed:
                failure = self._store.failures.of(step)
                if failure and (state := given_up(failure, self._folders)):
                    yield Elsewhere(unit, step, state)

    def _is_there(self, step: Step, listing: Listing) -> bool:
        if step.fingerprint in self._damaged:
            return self._store.record(step, listing) is not None
        # Just committed, by one rename: gigabytes of weights need not be hashed again.
        try:
            return Record.read(self._store.path(step, listing)).fingerprint == step.fingerprint
        except (OSError, ValueError):
            return False

    def _failed_since(self) -> set[str]:
        """Steps, by the first digits of their fingerprints, with failures of this run's time."""
        return {
            one
            for one, number in self._store.failures.attempts().items()
            if self._is_new(one, number)
        }

    def _is_new(self, short: str, attempts: int) -> bool:
        return attempts > self._attempts.get(short, 0)
