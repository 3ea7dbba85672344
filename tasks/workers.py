"""Pool of workers, one per slot. A worker starts when needed and is kept for later units.

If a worker dies, the next unit on its slot starts a new one. GPUs are leased by hardware id for the
whole host, so two runs never share a GPU.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from lce_core.errors import RunEndedError, SpecError, WorkerLostError
from lce_core.execution import LOCAL, Execution
from lce_core.store.steps import Step
from tasks.machines import leased_gpus, never, visible_gpus
from tasks.ray_engine import cluster
from tasks.ray_engine.workers import RayWorker
from tasks.slots import Slot, Slots, slot_counts
from tasks.worker_process import Event, Worker, WorkerProcess

_LEAVE_SECONDS = 5.0
"""Time for threads that still use Ray, before disconnecting."""
POLL_SECONDS = 0.5
"""Pause between checks whether Ray has found a node for a slot's actor."""


class Pool:
    """The workers of a run: at most one for each GPU, or for each slot on a CPU.

    `open` leases the GPUs and sets `slots`. Leaving the `with` block ends all workers and releases
    the GPUs. A closed pool starts no worker: threads that retry units would otherwise continue the
    run.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.is_open = False
        self.is_closed = False
        self.head = cluster.Head()
        self._leases = contextlib.ExitStack()
        self._workers: dict[tuple[int, ...], Worker] = {}
        self._busy: set[tuple[int, ...]] = set()
        """Places of slots that are computing a unit."""
        self._waiting: deque[tuple[int, ...]] = deque()
        """Places of slots whose Ray actor waits for a node, the longest wait first."""
        self._spare: list[tuple[tuple[int, ...], Worker]] = []
        """Former places and idle worker, for waiting slots to take over."""
        self._lock = threading.Lock()

    def open(self, *, trains: bool = True, has_to_end: Callable[[float], bool] = never) -> Self:
        """Lease GPUs of this machine, or connect to the Ray cluster, and divide them into slots.

        With `trains`, wait until enough GPUs for a training run are free, else for one.
        `has_to_end` is that of `leased_gpus`.
        """
        slots = (
            _slots(self.execution, trains, has_to_end)
            if self.execution.engine == LOCAL
            else cluster.slots(self.execution, self.head)
        )
        self.slots = self._leases.enter_context(slots)
        self.is_open = True
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def claim(self, kind: str) -> Slot | None:
        with self._lock:
            warm = list(self._workers)
        return self.slots.claim(kind, warm)

    def run(
        self,
        slot: Slot,
        steps: Sequence[Step],
        on_event: Callable[[Event], None],
        *,
        shared: bool = False,
        assists: bool = False,
    ) -> list[Event]:
        """Compute the steps on a claimed slot; see `Worker.run`.

        Raises RunEndedError, which nobody retries, if the pool was closed meanwhile.
        """
        try:
            worker = self._placed(slot, self._worker(slot), steps[0], on_event)
            ended = worker.run(steps, on_event, shared=shared, assists=assists)
            if worker.has_died:
                self._discard(slot.places)
            return ended
        except WorkerLostError:
            self._discard(slot.places)
            self._require_open()
            raise
        except BaseException:
            self._discard(slot.places)
            raise
        finally:
            with self._lock:
                self._busy.discard(slot.places)
                if len(self._spare) < len(self._waiting) and slot.places in self._workers:
                    self._spare.append((slot.places, self._workers.pop(slot.places)))

    def close(self) -> None:
        self.is_closed = True
        try:
            with self._lock:
                workers = list(self._workers.items())
            for _, worker in workers:  # ask all workers before closing any: they end concurrently
                worker.ask_to_end()
            for places, _ in workers:
                self._discard(places)
            self._close_spare()
            if self.execution.engine != LOCAL:  # disconnect from Ray once no thread uses it
                until = time.monotonic() + _LEAVE_SECONDS
                while self._busy and time.monotonic() < until:
                    time.sleep(0.05)
        finally:
            self._leases.close()

    def _require_open(self) -> None:
        if self.is_closed:
            raise RunEndedError(
                self.execution.home,
                "a run that has ended",
                "a run that is still active",
                "run the study again: lce continues where it stopped",
            )

    def _worker(self, slot: Slot) -> Worker:
        self._require_open()
        with self._lock:
            self._busy.add(slot.places)
            worker = self._workers.get(slot.places)
            overlap = [
                places
                for places in self._workers
                if places != slot.places and not set(places).isdisjoint(slot.places)
            ]
        for places in overlap:  # idle workers, whose loaded models still occupy the GPUs
            self._discard(places)
        if worker is None:
            worker = self._start(slot)
            with self._lock:
                self._workers[slot.places] = worker
            self._require_open()  # `close` may have run before the worker was listed
        return worker

    def _start(self, slot: Slot) -> Worker:
        if self.execution.engine == LOCAL:
            return WorkerProcess(slot, self.execution)
        return RayWorker(slot, self.execution, self.head)

    def _placed(
        self, slot: Slot, worker: Worker, step: Step, on_event: Callable[[Event], None]
    ) -> Worker:
        """Wait until Ray has started the slot's actor; return the worker to use.

        Meanwhile, take over another slot's idle worker if it has as many GPUs, or else close it, so
        that Ray can use its GPUs.
        """
        if worker.is_placed(POLL_SECONDS):
            return worker
        stage = {
            "event": "progress",
            "fingerprint": step.fingerprint,
            "stage": "waiting for a node",
        }
        with self._lock:
            self._waiting.append(slot.places)
        try:
            while not worker.is_placed(POLL_SECONDS):
                on_event(stage)
                places, other = self._idle_worker(slot)
                if other is None:
                    continue
                if len(places) != len(slot.places):
                    other.close()  # frees GPUs and cores for this slot's actor
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

    def _idle_worker(self, slot: Slot) -> tuple[tuple[int, ...], Worker | None]:
        """Remove an idle worker and return its places; ((), None) if another slot waited longer."""
        with self._lock:
            if self._waiting[0] != slot.places:
                return (), None
            if self._spare:
                return self._spare.pop()
            idle = next((places for places in self._workers if places not in self._busy), None)
            return ((), None) if idle is None else (idle, self._workers.pop(idle))

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
        yield Slots(slot_counts(execution, ()), ())
        return
    counts = slot_counts(execution, (len(visible),))
    least, most = (execution.processes, counts.places) if trains else (1, counts.evaluation)
    with leased_gpus(least, max(least, most), has_to_end) as gpus:
        yield Slots(slot_counts(execution, (len(gpus),)), gpus)
