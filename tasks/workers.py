"""Worker processes, one per slot: started when needed, kept warm, replaced when they die.

A slot is a set of GPUs, or a share of the CPU. GPUs are leased by id for the whole host, so two
runs never use the same one. Workers run under `tasks.supervisor` and cannot outlive this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from lce_core.errors import SpecError, WorkerLostError
from lce_core.execution import Execution
from lce_core.store.steps import Step
from tasks.gpus import leased_gpus, visible_gpus

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Slot:
    """Where one worker computes."""

    number: int
    gpus: tuple[str, ...] = ()


class Worker:
    """One worker process."""

    def __init__(self, slot: Slot, execution: Execution) -> None:
        logs = execution.home / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self.log = logs / f"worker-{os.getpid()}-{slot.number}.log"
        requests_in, requests_out = os.pipe()
        events_in, events_out = os.pipe()
        fds = (requests_in, events_out)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tasks.supervisor", sys.executable, "-m", "tasks.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=fds,
                env=_environment(slot, execution, fds),
                start_new_session=True,  # Ctrl-C is for this process, which then ends its workers
            )
        for fd in fds:
            os.close(fd)
        self._requests: IO[str] = os.fdopen(requests_out, "w", encoding="utf-8")
        self._events: IO[str] = os.fdopen(events_in, encoding="utf-8")
        self.has_died = False
        """Whether it was seen to end, and takes no further steps."""
        self._send(execution.model_dump_json())

    def run(self, steps: Sequence[Step], on_event: Callable[[Event], None]) -> list[Event]:
        """Computes the steps in order; returns the end event of each.

        Raises:
          WorkerLostError: the process ended before all steps did.
        """
        self._send(json.dumps({"steps": [step.to_json() for step in steps]}))
        ended: list[Event] = []
        for line in self._events:
            if not line.endswith("\n"):
                break  # it was killed while it wrote
            event = json.loads(line)
            if event["event"] == "end":
                return ended
            if event["event"] == "step":
                ended.append(event)
            on_event(event)
        self.has_died = True
        if len(ended) == len(steps):
            return ended  # between the last step and the word that it was the last
        lost = WorkerLostError(
            steps[len(ended)].name,
            f"a worker that ended with {len(steps) - len(ended)} of {len(steps)} steps to go",
            "a worker that lives until its last step has ended",
            f"read {self.log}, and look whether the machine ran out of memory",
        )
        lost.fingerprint = steps[len(ended)].fingerprint
        raise lost

    def close(self) -> None:
        """Ends the process and everything below it."""
        with contextlib.suppress(OSError):
            self._requests.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:  # stuck in a driver: its supervisor cannot end it either
            self._process.kill()
        self._events.close()
        if self._process.returncode == 0:
            self.log.unlink(missing_ok=True)

    def _send(self, line: str) -> None:
        try:
            self._requests.write(line + "\n")
            self._requests.flush()
        except OSError as error:
            raise WorkerLostError(
                "worker",
                f"a process that takes no requests ({error.strerror})",
                "a worker that waits for requests",
                f"read {self.log}",
            ) from None


class Pool:
    """The workers of this process, at most one per slot."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self._leases = contextlib.ExitStack()
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        self.slots = self._leases.enter_context(_slots(execution))
        for slot in self.slots:
            self._free.put(slot)
        self._workers: dict[int, Worker] = {}
        self._lock = threading.Lock()

    def run(self, steps: Sequence[Step], on_event: Callable[[Event], None]) -> list[Event]:
        """Computes the steps on the next free slot; see `Worker.run`."""
        slot = self._free.get()
        try:
            worker = self._workers.get(slot.number)
            if worker is None:
                worker = Worker(slot, self.execution)
                with self._lock:
                    self._workers[slot.number] = worker
            ended = worker.run(steps, on_event)
            if worker.has_died:
                self._discard(slot)
            return ended
        except BaseException:
            self._discard(slot)
            raise
        finally:
            self._free.put(slot)

    def close(self) -> None:
        """Ends all workers and frees their GPUs."""
        try:
            for slot in self.slots:
                self._discard(slot)
        finally:
            self._leases.close()

    def _discard(self, slot: Slot) -> None:
        with self._lock:
            worker = self._workers.pop(slot.number, None)
        if worker is not None:
            worker.close()


_POOLS: dict[str, Pool] = {}
_POOLS_LOCK = threading.Lock()


def pool_for(execution: Execution) -> Pool:
    """This process's pool for an execution, started on first use."""
    key = execution.model_dump_json()
    with _POOLS_LOCK:
        if key not in _POOLS:
            _POOLS[key] = Pool(execution)
        return _POOLS[key]


def close_pools() -> None:
    """Ends all workers of this process."""
    with _POOLS_LOCK:
        while _POOLS:
            _POOLS.popitem()[1].close()


@contextlib.contextmanager
def _slots(execution: Execution) -> Iterator[tuple[Slot, ...]]:
    if execution.device == "cpu" or not visible_gpus():
        if execution.device == "cuda":
            raise SpecError(
                "execution.device",
                "cuda, but no GPU is visible here",
                "a device of this machine",
                "use device auto or cpu",
            )
        yield tuple(Slot(number) for number in range(execution.slots))
        return
    size = execution.processes
    with leased_gpus(least=size, most=execution.slots * size) as gpus:
        groups = [gpus[start : start + size] for start in range(0, len(gpus) - size + 1, size)]
        yield tuple(Slot(number, tuple(group)) for number, group in enumerate(groups))


def _environment(slot: Slot, execution: Execution, fds: Sequence[int]) -> dict[str, str]:
    environment = dict(os.environ)
    environment["LCE_WORKER_FDS"] = ",".join(str(fd) for fd in fds)
    environment["OMP_NUM_THREADS"] = str(execution.threads)
    environment["TOKENIZERS_PARALLELISM"] = "false"
    environment["PYTHONUNBUFFERED"] = "1"
    if slot.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(slot.gpus)
    return environment
