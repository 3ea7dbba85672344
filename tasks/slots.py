"""Slots of a host: how many steps of each kind run at once, and on which GPUs.

Training slots and evaluation slots share the same places (a GPU, or a share of the CPU). Eight
GPUs, for example, are one slot for a training run of eight processes, or eight evaluation slots.
"""

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lce_core.execution import Execution
from lce_core.study.step_kinds import TrainingSpec, kind_named


@dataclass(frozen=True)
class Slot:
    """The places (GPUs, or shares of the CPU) on which one worker computes."""

    places: tuple[int, ...]
    """Indices among all places of this run."""
    gpus: tuple[str, ...] = ()
    """CUDA names; in a Ray cluster mere numbers; () on a CPU."""


@dataclass(frozen=True)
class SlotCounts:
    """Numbers of training runs and of other steps that run at once."""

    training: int
    evaluation: int
    """Concurrent steps of any other kind."""
    places_per_training: int
    """GPUs of a training run, or 1 on a CPU."""

    @property
    def places(self) -> int:
        """Both kinds of slots share places, so the larger need counts."""
        return max(self.training * self.places_per_training, self.evaluation)


def slot_counts(execution: Execution, gpus: Sequence[int]) -> SlotCounts:
    """Return the slots on the GPUs of each machine, or on the CPU without any.

    A training run needs all its GPUs in one machine. If none has as many, there are no training
    slots.
    """
    training = execution.training_slots or execution.slots
    evaluation = execution.evaluation_slots or execution.slots
    if not any(gpus):
        return SlotCounts(training, evaluation, 1)
    size = execution.processes
    runs = sum(number // size for number in gpus)
    return SlotCounts(min(training, runs), min(evaluation, sum(gpus)), size)


def is_training(kind: str) -> bool:
    return issubclass(kind_named(kind), TrainingSpec)


class Slots:
    """Claims and releases slots among the places of this process. Thread-safe."""

    def __init__(self, counts: SlotCounts, gpus: Sequence[str]) -> None:
        self.counts = counts
        self._gpus = tuple(gpus)
        self._free = set(range(len(gpus) or counts.places))
        self._used: dict[Slot, bool] = {}
        """The claimed slots; True if used for training."""
        self._lock = threading.Lock()

    def has_room(self, kind: str) -> bool:
        with self._lock:
            return bool(self._free_choices(kind))

    def claim(self, kind: str, warm: Collection[tuple[int, ...]] = ()) -> Slot | None:
        """Claim a slot, preferably one of `warm` places with a worker; None if none is free."""
        with self._lock:
            if not (choices := self._free_choices(kind)):
                return None
            occupied = {place for places in warm for place in places}
            # Prefer a slot with a running worker, then places without workers: before a worker can
            # start, the workers on overlapping places must be closed.
            best = min(
                choices, key=lambda one: (one not in warm, not occupied.isdisjoint(one), one)
            )
            slot = Slot(best, tuple(self._gpus[place] for place in best) if self._gpus else ())
            self._free.difference_update(best)
            self._used[slot] = is_training(kind)
            return slot

    def release(self, slot: Slot) -> None:
        with self._lock:
            del self._used[slot]
            self._free.update(slot.places)

    def is_crowded_out(self, kind: str) -> bool:
        """Return True if `kind` is a training kind that could start if enough GPUs were free.

        The scheduler then starts no step that could occupy these GPUs for long.
        """
        with self._lock:
            return is_training(kind) and not self._at_limit(kind) and not self._free_choices(kind)

    def _free_choices(self, kind: str) -> list[tuple[int, ...]]:
        if self._at_limit(kind):
            return []
        # Use aligned groups of places, so that evaluation steps fragment as few training slots as
        # possible.
        size = self.counts.places_per_training if is_training(kind) else 1
        places = len(self._gpus) or self.counts.places
        choices = (tuple(range(at, at + size)) for at in range(0, places - size + 1, size))
        return [places for places in choices if self._free.issuperset(places)]

    def _at_limit(self, kind: str) -> bool:
        training = is_training(kind)
        used = sum(one is training for one in self._used.values())
        return used >= (self.counts.training if training else self.counts.evaluation)
