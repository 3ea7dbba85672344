"""Pool of workers, one per slot: started when needed, kept warm, replaced when they die.

A worker is a process on this machine or an actor of a Ray cluster; the pool treats both alike. GPUs
are leased by hardware id for the whole host, so two runs never share a GPU.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

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
"""Poll interval of a unit whose Ray actor waits for a node with free resources."""


class Pool:
    """The workers of a run, at most one for each GPU or share of the CPU.

    `open` claims the GPUs. Leaving the `with` block ends all workers.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.is_open = False
        self.is_closed = False
        self.head = cluster.Head()
        """Liveness of the Ray cluster's head; unused without Ray."""
        self._leases = contextlib.ExitStack()
        self._workers: dict[tuple[int, ...], Worker] = {}
        self._busy: set[tuple[int, ...]] = set()
        """Places of the slots that compute a unit."""
        self._waiting: deque[tuple[int, ...]] = deque()
        """Places of the busy slots whose Ray actor waits for a node, longest wait first."""
        self._spare: list[tuple[tuple[int, ...], Worker]] = []
        """Idle workers offered to waiting slots, each with the places of its former slot."""
        self._lock = threading.Lock()

    def open(self, *, trains: bool = True, has_to_end: Callable[[float], bool] = never) -> Self:
        """Claim the slots of this machine or of the cluster.

        Args:
          trains: whether training runs are expected. Without them the pool waits for one GPU only.
          has_to_end: waits the given seconds; returns True if the pool must stop waiting for GPUs.

        Raises:
          KeyboardInterrupt: if `has_to_end` returned True while waiting for free GPUs.
        """
        slots = (
            _slots(self.execution, trains, has_to_end)
            if self.execution.engine == LOCAL
            else cluster.slots(self.execution, self.head)
        )
        self._slots = self._leases.enter_context(slots)
        self.is_open = True
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def shape(self) -> Shape:
        """How many training runs and how many other steps run at once."""
        return self._slots.shape

    def has_room(self, kind: str) -> bool:
        """Return True if a slot for a unit of this kind is free."""
        return self._slots.has_room(kind)

    def take(self, kind: str) -> Slot | None:
        """Claim a slot for a unit of this kind; return None if none is free."""
        with self._lock:
            warm = list(self._workers)
        return self._slots.take(kind, warm)

    def give_back(self, slot: Slot) -> None:
        """Release a slot; its worker keeps running."""
        self._slots.give_back(slot)

    def is_crowded_out(self, kind: str) -> bool:
        """Return True if `kind` trains and only the lack of free GPUs prevents its start."""
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
        """Compute the steps on a claimed slot; see `Worker.run`."""
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
        """End all workers and release their GPUs; running steps release their leases."""
        self.is_closed = True
        try:
            with self._lock:
                workers = list(self._workers.items())
            for _, worker in workers:  # ask all workers first, so that they end concurrently
                worker.ask_to_end()
            for places, _ in workers:
                self._discard(places)
            self._close_spare()
            if self.execution.engine != LOCAL:  # leave Ray only after no thread uses it any more
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
        for places in overlap:  # idle, but their loaded models still occupy the GPU
            self._discard(places)
        if worker is None:
            worker = self._started(slot)
            with self._lock:
                self._workers[slot.places] = worker
        return worker

    def _started(self, slot: Slot) -> Worker:
        if self.execution.engine == LOCAL:
            return WorkerProcess(slot, self.execution)
        return RayWorker(slot, self.execution, self.head)

    def _placed(
        self, slot: Slot, worker: Worker, step: Step, on_event: Callable[[Event], None]
    ) -> Worker:
        """Wait until Ray has started the slot's actor, or take over another slot's idle worker.

        Returns the worker to use. An idle worker with another number of GPUs is closed, so that
        Ray can start this slot's actor.
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
                    other.close()  # closing it frees some room
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
        """Return an idle worker to take over or close, and its places.

        Returns ((), None) if no worker is idle or another slot has waited longer.
        """
        with self._lock:
            if self._waiting[0] != slot.places:
                return (), None
            if self._spare:
                return self._spare.pop()
            idle = next((places for places in self._workers if places not in self._busy), None)
            return ((), None) if idle is None else (idle, self._workers.pop(idle))

    def _rest(self, slot: Slot) -> None:
        """Mark the slot as idle, and offer its worker to a slot whose actor waits for a node."""
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
