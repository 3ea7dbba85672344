"""Where steps are computed on this host: how many at a time of each sort, and on which GPUs.

Training and evaluation have slots of their own over the same places, which are GPUs, or shares of
the CPU. A training run takes as many GPUs as it has processes, anything else takes one; so eight
GPUs are one slot for a training run of eight processes and eight slots for evaluation.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from lce_core.execution import Execution
from lce_core.study.step_kinds import TrainingSpec, kind_named


@dataclass(frozen=True)
class Slot:
    """Where one worker computes."""

    places: tuple[int, ...]
    """Numbers among this run's places."""
    gpus: tuple[str, ...] = ()
    """Those of the places, as CUDA knows them here, or numbers among a cluster's; none on a CPU."""

    @property
    def number(self) -> int:
        """Of its first place."""
        return self.places[0]

    def to_json(self) -> dict[str, Any]:
        """JSON form; `from_json` is its inverse."""
        return {"places": list(self.places), "gpus": list(self.gpus)}

    @classmethod
    def from_json(cls, payload: dict[str, Any]) -> Slot:
        """The slot with this JSON form."""
        return cls(tuple(payload["places"]), tuple(payload["gpus"]))


@dataclass(frozen=True)
class Shape:
    """Slots of a host."""

    training: int
    """Training runs at a time."""
    evaluation: int
    """Steps of any other kind at a time."""
    width: int
    """Places of one training run."""

    @property
    def places(self) -> int:
        """Of all that can run at the same time."""
        return max(self.training * self.width, self.evaluation)


def shape_of(execution: Execution, num_gpus: int) -> Shape:
    """The slots of an execution on so many GPUs; 0 for a CPU, where a slot is one place.

    Training has no slot where its processes need more GPUs than there are.
    """
    training = execution.training_slots or execution.slots
    evaluation = execution.evaluation_slots or execution.slots
    if not num_gpus:
        return Shape(training, evaluation, 1)
    width = execution.processes
    return Shape(min(training, num_gpus // width), min(evaluation, num_gpus), width)


def is_training(kind: str) -> bool:
    """Whether steps of this kind take a training slot."""
    return issubclass(kind_named(kind), TrainingSpec)


class Slots:
    """Slots of this process, taken and given back; safe to use from several threads."""

    def __init__(self, shape: Shape, gpus: Sequence[str]) -> None:
        self.shape = shape
        self._gpus = tuple(gpus)
        self._free = set(range(len(gpus) or shape.places))
        self._used: dict[Slot, bool] = {}
        """Whether for training, of each slot that is taken."""
        self._lock = threading.Lock()

    def has_room(self, kind: str) -> bool:
        """Whether a slot for a step of this kind is free."""
        with self._lock:
            return bool(self._open(kind))

    def take(self, kind: str, warm: Collection[tuple[int, ...]] = ()) -> Slot | None:
        """A slot for a step of this kind, or None while none is free.

        Args:
          kind: of the step.
          warm: places of slots whose workers run already; one of these if there is a choice.
        """
        with self._lock:
            if not (open_ := self._open(kind)):
                return None
            others = {place for places in warm for place in places}
            # A worker that is there; else a place without one, as others have to end for this one.
            best = min(open_, key=lambda one: (one not in warm, not others.isdisjoint(one), one))
            slot = Slot(best, tuple(self._gpus[place] for place in best) if self._gpus else ())
            self._free.difference_update(best)
            self._used[slot] = is_training(kind)
            return slot

    def give_back(self, slot: Slot) -> None:
        """The slot is free again."""
        with self._lock:
            del self._used[slot]
            self._free.update(slot.places)

    def is_crowded_out(self, kind: str) -> bool:
        """Whether steps of other kinds, of which each is over some day, take its places."""
        with self._lock:
            return is_training(kind) and not self._at_limit(kind) and not self._open(kind)

    def _open(self, kind: str) -> list[tuple[int, ...]]:
        if self._at_limit(kind):
            return []
        return [places for places in self._choices(kind) if self._free.issuperset(places)]

    def _at_limit(self, kind: str) -> bool:
        training = is_training(kind)
        used = sum(one is training for one in self._used.values())
        return used >= (self.shape.training if training else self.shape.evaluation)

    def _choices(self, kind: str) -> list[tuple[int, ...]]:
        # Aligned groups, lest single steps in the wrong places keep two training runs apart.
        width = self.shape.width if is_training(kind) else 1
        places = len(self._gpus) or self.shape.places
        return [tuple(range(start, start + width)) for start in range(0, places - width + 1, width)]
