"""Workers, one per slot: started when needed, kept warm, replaced when they die.

They are processes of this machine, or actors of a Ray cluster; nothing else is different. GPUs are
leased by id for the whole host, so two runs never use the same one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lce_core.errors import SpecError
from lce_core.execution import LOCAL, Execution
from lce_core.store.steps import Step
from tasks.gpus import leased_gpus, never, visible_gpus
from tasks.ray_engine import cluster
from tasks.ray_engine.workers import RayWorker
from tasks.slots import Shape, Slot, Slots, shape_of
from tasks.worker_process import Worker, WorkerProcess

Event = Mapping[str, Any]

_LEAVE_SECONDS = 5.0
LOOK_SECONDS = 0.5
"""Between two looks of a unit at whether its worker has its place."""


class Pool:
    """The workers of this process, at most one for each of its places.

    Args:
      execution: how to compute.
      trains: whether there will be training runs; without them no GPU is waited for but the first.
      has_to_end: waits for so many seconds; whether GPUs that others use are to be waited for no
        more.

    Raises:
      KeyboardInterrupt: they are not.
    """

    def __init__(
        self,
        execution: Execution,
        *,
        trains: bool = True,
        has_to_end: Callable[[float], bool] = never,
    ) -> None:
        self.execution = execution
        self.is_closed = False
        self._leases = contextlib.ExitStack()
        is_local = execution.engine == LOCAL
        slots = _slots(execution, trains, has_to_end) if is_local else cluster.slots(execution)
        self._slots = self._leases.enter_context(slots)
        self._start: Callable[[Slot, Execution], Worker] = WorkerProcess if is_local else RayWorker
        self._workers: dict[tuple[int, ...], Worker] = {}
        self._busy: set[tuple[int, ...]] = set()
        """Places of slots that compute a unit."""
        self._waiting: deque[tuple[int, ...]] = deque()
        """Of these, the ones whose worker has no place yet, the first one first."""
        self._spare: list[tuple[tuple[int, ...], Worker]] = []
        """Workers that their slots leave to those that wait."""
        self._lock = threading.Lock()

    @property
    def shape(self) -> Shape:
        """How many slots there are of each sort."""
        return self._slots.shape

    def has_room(self, kind: str) -> bool:
        """Whether a slot for a unit of this kind is free."""
        return self._slots.has_room(kind)

    def take(self, kind: str) -> Slot | None:
        """A slot for a unit of this kind, to be given back; None while none is free."""
        with self._lock:
            warm = list(self._workers)
        return self._slots.take(kind, warm)

    def give_back(self, slot: Slot) -> None:
        """The slot is free again; its worker is kept."""
        self._slots.give_back(slot)

    def is_crowded_out(self, kind: str) -> bool:
        """Whether a training run has a slot, whose GPUs others use."""
        return self._slots.is_crowded_out(kind)

    def run(
        self,
        slot: Slot,
        steps: Sequence[Step],
        on_event: Callable[[Event], None],
        *,
        shared: bool = False,
        assists: bool = False,
    ) -> list[Event]:
        """Computes the steps on a slot that was taken; see `Worker.run`."""
        try:
            worker = self._placed(slot, self._worker(slot), steps[0], on_event)
            ended = worker.run(steps, on_event, shared=shared, assists=assists)
            if worker.has_died:
                self._discard(slot.places)
            return ended
        except BaseException:
            self._discard(slot.places)
            raise
        finally:
            self._rest(slot)

    def close(self) -> None:
        """Ends all workers and frees their GPUs; steps that were begun give their leases back."""
        self.is_closed = True
        try:
            with self._lock:
                workers = list(self._workers.items())
            for _, worker in workers:  # all at once, and only then waited for
                worker.ask_to_end()
            for places, _ in workers:
                self._discard(places)
            self._close_spare()
            if self.execution.engine != LOCAL:  # Ray is left once no thread asks it any more
                until = time.monotonic() + _LEAVE_SECONDS
                while self._busy and time.monotonic() < until:
                    time.sleep(0.05)
        finally:
            self._leases.close()

    def _worker(self, slot: Slot) -> Worker:
        with self._lock:
            self._busy.add(slot.places)
            worker = self._workers.get(slot.places)
            overlap = [
                places
                for places in self._workers
                if places != slot.places and not set(places).isdisjoint(slot.places)
            ]
        for places in overlap:  # idle, but what they keep loaded fills the GPU
            self._discard(places)
        if worker is None:
            worker = self._start(slot, self.execution)
            with self._lock:
                self._workers[slot.places] = worker
        return worker

    def _placed(
        self, slot: Slot, worker: Worker, step: Step, on_event: Callable[[Event], None]
    ) -> Worker:
        """The slot's worker once it has its place: this one, or one that another slot spares.

        A cluster that has lost a node has less room than there are slots.
        """
        if worker.is_placed(LOOK_SECONDS):
            return worker
        stage = {"event": "progress", "fingerprint": step.fingerprint, "stage": "waiting for room"}
        with self._lock:
            self._waiting.append(slot.places)
        try:
            while not worker.is_placed(LOOK_SECONDS):
                on_event(stage)
                places, other = self._spared(slot)
                if other is None:
                    continue
                if len(places) != len(slot.places):
                    other.close()  # which makes some room
                    continue
                with self._lock:
                    self._workers[slot.places] = other
                worker.close()
                return other
            return worker
        finally:
            with self._lock:
                self._waiting.remove(slot.places)
            if not self._waiting:
                self._close_spare()

    def _spared(self, slot: Slot) -> tuple[tuple[int, ...], Worker | None]:
        """A worker that computes nothing, if this slot has waited longest."""
        with self._lock:
            if self._waiting[0] != slot.places:
                return (), None
            if self._spare:
                return self._spare.pop()
            idle = next((places for places in self._workers if places not in self._busy), None)
            return ((), None) if idle is None else (idle, self._workers.pop(idle))

    def _rest(self, slot: Slot) -> None:
        """The slot's unit has ended; those that wait for a worker go before its next unit."""
        with self._lock:
            self._busy.discard(slot.places)
            if len(self._spare) < len(self._waiting) and slot.places in self._workers:
                self._spare.append((slot.places, self._workers.pop(slot.places)))

    def _close_spare(self) -> None:
        with self._lock:
            spare, self._spare = self._spare, []
        for _, worker in spare:
            worker.close()

    def _discard(self, places: tuple[int, ...]) -> None:
        with self._lock:
            worker = self._workers.pop(places, None)
        if worker is not None:
            worker.close()


_POOLS: dict[str, Pool] = {}
_POOLS_LOCK = threading.Lock()


def pool_for(
    execution: Execution, *, trains: bool = True, has_to_end: Callable[[float], bool] = never
) -> Pool:
    """This process's pool for an execution, made on first use as `Pool` says."""
    key = execution.model_dump_json()
    with _POOLS_LOCK:
        if key not in _POOLS:
            _POOLS[key] = Pool(execution, trains=trains, has_to_end=has_to_end)
        return _POOLS[key]


def close_pools() -> None:
    """Ends all workers of this process."""
    with _POOLS_LOCK:
        while _POOLS:
            _POOLS.popitem()[1].close()


@contextlib.contextmanager
def _slots(
    execution: Execution, trains: bool, has_to_end: Callable[[float], bool]
) -> Iterator[Slots]:
    visible = {} if execution.device == "cpu" else visible_gpus()
    if not visible:
        if execution.device == "cuda":
            raise SpecError(
                "execution.device",
                "cuda, but no GPU is visible here",
                "a device of this machine",
                "use device auto or cpu",
            )
        yield Slots(shape_of(execution, 0), ())
        return
    shape = shape_of(execution, len(visible))
    least, most = (execution.processes, shape.places) if trains else (1, shape.evaluation)
    with leased_gpus(least, max(least, most), has_to_end) as gpus:
        yield Slots(shape_of(execution, len(gpus)), gpus)
