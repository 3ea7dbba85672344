"""The interface of a worker, and its implementation as a process on this machine.

Worker processes run under `tasks.supervisor`, so they end when the run's process ends or dies.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from lce_core.environment import allocator_settings, for_child
from lce_core.errors import WorkerLostError
from lce_core.execution import Execution
from lce_core.store.odd_files import make_folder, make_way
from lce_core.store.steps import Step
from tasks.slots import Slot
from tasks.worker import END, ENDED

Event = Mapping[str, Any]

_KEPT_BY_MALLOC = {"MALLOC_MMAP_THRESHOLD_": 32 << 20, "MALLOC_TRIM_THRESHOLD_": 256 << 20}
"""Sizes in bytes up to which glibc keeps freed memory, instead of returning it to the system, which
clears each page. A small model on a CPU gets a tenth faster (docs/performance.md)."""


END_SECONDS = 10.0
"""Time for a worker to release the lease of its running step and exit."""


class Worker(ABC):
    """Computes the steps of one slot, in a process on this machine or on another host."""

    has_died = False
    """True once the worker is known to have ended. It then accepts no further steps."""

    def run(
        self,
        steps: Sequence[Step],
        on_event: Callable[[Event], None],
        *,
        shared: bool = False,
        assists: bool = False,
    ) -> list[Event]:
        """Compute the steps in order; return their end events, described in `tasks.worker`.

        With `shared`, other processes compute the unit as well: skip the steps whose lease they
        hold and compute the others. Without it, a process that holds the first missing step has
        claimed the whole unit, and no further step is computed. With `assists`, compute parts of a
        long step that another worker will finish.
        """
        payload = [step.to_json() for step in steps]
        request = json.dumps({"steps": payload, "shared": shared, "assists": assists})
        ended: list[Event] = []
        for event in self.events(request):
            if event["event"] == "end":
                return ended
            if event["event"] == "step":
                ended.append(event)
            on_event(event)
        self.has_died = True
        if len(ended) == len(steps):
            return ended  # it died between its last step and "end"
        lost = WorkerLostError(
            steps[len(ended)].name,
            f"a worker that ended with {len(steps) - len(ended)} of {len(steps)} steps not done",
            "a worker that runs until its last step is done",
            f"read {self.account}, and check whether its machine ran out of memory",
        )
        if self.died_of_its_step:
            lost.fingerprint = steps[len(ended)].fingerprint
        raise lost

    @abstractmethod
    def events(self, request: str) -> Iterator[Event]:
        """Send a request and yield its events up to "end", or until the worker dies."""

    def is_placed(self, seconds: float) -> bool:  # noqa: ARG002 - unused here; see RayWorker
        """Wait up to `seconds` for GPUs and cores, as a Ray actor must; return True with them."""
        return True

    @property
    @abstractmethod
    def account(self) -> str:
        """Path of the log, or command (`ray status`), that tells why the worker died."""

    @property
    @abstractmethod
    def died_of_its_step(self) -> bool:
        """True if the running step probably caused the worker's death, such as by using up memory.

        False if lce itself ended the worker, or if the worker's node was lost.
        """

    @abstractmethod
    def ask_to_end(self) -> None:
        """Ask the worker to abort a running step and release its lease. Return without waiting."""

    @abstractmethod
    def close(self) -> None: ...


class WorkerProcess(Worker):
    """One worker process of this machine."""

    def __init__(self, slot: Slot, execution: Execution) -> None:
        logs = make_folder(execution.home / "logs")
        # Processes in containers that share a store may have equal pids, so include the host name.
        self.log = logs / f"worker-{socket.gethostname()}-{os.getpid()}-{slot.places[0]}.log"
        requests_in, requests_out = os.pipe()
        events_in, events_out = os.pipe()
        fds = (requests_in, events_out)
        make_way(self.log)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tasks.supervisor", sys.executable, "-m", "tasks.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=fds,
                env=_environment(slot, execution, fds),
                start_new_session=True,  # Ctrl-C must not reach the worker; this process ends it
            )
        for fd in fds:
            os.close(fd)
        self._requests: IO[str] = os.fdopen(requests_out, "w", encoding="utf-8")
        self._events: IO[str] = os.fdopen(events_in, encoding="utf-8")
        self._is_computing = self._was_asked_to_end = False
        self._send(execution.model_dump_json())

    def events(self, request: str) -> Iterator[Event]:
        self._is_computing = True
        self._send(request)
        for line in self._events:
            if not line.endswith("\n"):
                break  # the worker was killed while it wrote
            event = json.loads(line)
            if event["event"] == "end":
                self._is_computing = False
            yield event
            if event["event"] == "end":
                return
        self.has_died = True

    @property
    def account(self) -> str:
        return str(self.log)

    @property
    def died_of_its_step(self) -> bool:
        """Return False if the worker was asked to end, or exits with `END`'s code within 5 s."""
        if self._was_asked_to_end:
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(5.0) != ENDED
        return True

    def ask_to_end(self) -> None:
        if self._is_computing:
            self._was_asked_to_end = True
            self._process.send_signal(END)

    def close(self) -> None:
        if self._is_computing and not self.has_died:
            self.ask_to_end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        with contextlib.suppress(OSError):
            self._requests.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:  # stuck in a driver call
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
                f"a worker process that has died ({error.strerror})",
                "a running worker process",
                f"read {self.log}",
            ) from None


def _environment(slot: Slot, execution: Execution, fds: Sequence[int]) -> dict[str, str]:
    environment = for_child(os.environ)
    environment["LCE_WORKER_FDS"] = ",".join(str(fd) for fd in fds)
    environment["OMP_NUM_THREADS"] = str(execution.threads)
    environment["TOKENIZERS_PARALLELISM"] = "false"
    environment["PYTHONUNBUFFERED"] = "1"
    for name, limit in _KEPT_BY_MALLOC.items():
        environment.setdefault(name, str(limit))
    environment.update(allocator_settings(environment))
    if slot.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(slot.gpus)
    return environment
