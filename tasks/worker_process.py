"""The worker process of a slot on this machine, and what it has in common with one elsewhere.

Workers run under `tasks.supervisor` and cannot outlive this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from lce_core.errors import WorkerLostError
from lce_core.execution import Execution
from lce_core.store.odd_files import make_folder, make_way
from lce_core.store.steps import Step
from tasks.own_code import of_own_code
from tasks.slots import Slot
from tasks.worker import END, ENDED

Event = Mapping[str, Any]

_KEPT_BY_MALLOC = {"MALLOC_MMAP_THRESHOLD_": 32 << 20, "MALLOC_TRIM_THRESHOLD_": 256 << 20}
"""Bytes that glibc keeps instead of giving them back to the system, which clears every page before
it gives it out again: a tenth of the time of a small model on a CPU (docs/performance.md)."""


END_SECONDS = 10.0
"""What a worker in the middle of a step has to give its lease back, once it is asked to end."""


class Worker(ABC):
    """What computes the steps of one slot: a process here, or one on another host."""

    has_died = False
    """Whether it was seen to end, and takes no further steps."""

    def run(
        self,
        steps: Sequence[Step],
        on_event: Callable[[Event], None],
        *,
        shared: bool = False,
        assists: bool = False,
    ) -> list[Event]:
        """Computes the steps in order; returns the end event of each.

        Args:
          steps: of one unit.
          on_event: told of each event.
          shared: whether to go past steps that others hold; else the first one, if it is held, is
            taken for the whole unit.
          assists: whether to compute parts of the steps, which others compute.

        Raises:
          WorkerLostError: the process ended before all steps did.
        """
        asked = [step.to_json() for step in steps]
        request = json.dumps({"steps": asked, "shared": shared, "assists": assists})
        ended: list[Event] = []
        for event in self.answers(request):
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
            f"read {self.account}, and look whether its machine ran out of memory",
        )
        if self.died_of_its_step:
            lost.fingerprint = steps[len(ended)].fingerprint
        raise lost

    @abstractmethod
    def answers(self, request: str) -> Iterator[Event]:
        """Sends a request (`tasks.worker`); gives its events until "end", or until it has died."""

    def is_placed(self, seconds: float) -> bool:  # noqa: ARG002 - one elsewhere may have to wait
        """Whether it has its place; waits for it for so long at most."""
        return True

    @property
    @abstractmethod
    def account(self) -> str:
        """What says why it died."""

    @property
    @abstractmethod
    def died_of_its_step(self) -> bool:
        """Whether nobody and nothing else is known to have ended it."""

    @abstractmethod
    def ask_to_end(self) -> None:
        """Lets a step in the middle of which it is come to an orderly end; waits for nothing."""

    @abstractmethod
    def close(self) -> None:
        """Ends the process and everything below it."""


class WorkerProcess(Worker):
    """One worker process of this machine."""

    def __init__(self, slot: Slot, execution: Execution) -> None:
        logs = make_folder(execution.home / "logs")
        # In containers that share a store processes have the same pid.
        self.log = logs / f"worker-{socket.gethostname()}-{os.getpid()}-{slot.number}.log"
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
                start_new_session=True,  # Ctrl-C is for this process, which then ends its workers
            )
        for fd in fds:
            os.close(fd)
        self._requests: IO[str] = os.fdopen(requests_out, "w", encoding="utf-8")
        self._events: IO[str] = os.fdopen(events_in, encoding="utf-8")
        self._computes = False
        self._send(execution.model_dump_json())

    def answers(self, request: str) -> Iterator[Event]:
        """See `Worker.answers`.

        Raises:
          WorkerLostError: the process had ended before.
        """
        self._computes = True
        self._send(request)
        for line in self._events:
            if not line.endswith("\n"):
                break  # it was killed while it wrote
            event = json.loads(line)
            if event["event"] == "end":
                self._computes = False
            yield event
            if event["event"] == "end":
                return
        self.has_died = True

    @property
    def account(self) -> str:
        """Its log."""
        return str(self.log)

    @property
    def died_of_its_step(self) -> bool:
        """Whether it was not asked to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(5.0) != ENDED
        return True

    def ask_to_end(self) -> None:
        """Asks a worker in the middle of a step."""
        if self._computes:
            self._process.send_signal(END)

    def close(self) -> None:
        """Ends the process and everything below it."""
        if self._computes and not self.has_died:
            self.ask_to_end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
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


def _environment(slot: Slot, execution: Execution, fds: Sequence[int]) -> dict[str, str]:
    environment = of_own_code()
    environment["LCE_WORKER_FDS"] = ",".join(str(fd) for fd in fds)
    environment["OMP_NUM_THREADS"] = str(execution.threads)
    environment["TOKENIZERS_PARALLELISM"] = "false"
    environment["PYTHONUNBUFFERED"] = "1"
    for name, limit in _KEPT_BY_MALLOC.items():
        environment.setdefault(name, str(limit))
    if slot.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(slot.gpus)
    return environment
