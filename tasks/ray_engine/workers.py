"""Workers as actors of a Ray cluster. They use the same requests and events as local workers.

A `RayWorker` in the run's process controls a `WorkerHost`, an actor on the node that Ray chose, and
the actor runs a worker process there.
"""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from lce_core.errors import StoreError
from lce_core.execution import Execution
from tasks.machines import leased_gpus
from tasks.ray_engine import cluster
from tasks.slots import Slot
from tasks.worker_process import END_SECONDS, Event, Worker, WorkerProcess

_REPLY_SECONDS = 5.0
"""Time without a message of an actor before the head node is checked."""


class RayWorker(Worker):
    """The worker of a slot, on any node with enough resources."""

    def __init__(self, slot: Slot, execution: Execution, head: cluster.Head) -> None:
        self._head = head
        self._ray = ray = cluster.connected(execution.engine)
        needs = cluster.needs_of(slot, execution)
        self._host: Any = (
            ray.remote(WorkerHost)
            # Never restart a lost actor, because its events are lost as well. The unit is retried
            # on a new actor.
            .options(**needs, max_restarts=0, max_concurrency=4, runtime_env=cluster.environment())
            .remote(slot, execution.model_dump_json(), needs["num_gpus"])
        )
        self._where = ""
        """Log and host of the worker; "" until Ray has started the actor."""
        self._why_lost = ""
        """Ray's error after the actor was lost or could not be started."""
        self._placed = self._host.whereabouts.remote()

    def is_placed(self, seconds: float) -> bool:
        if self._where or self._why_lost:
            return True
        if not self._ray.wait([self._placed], timeout=seconds)[0]:
            self._require_head()
            return False
        try:
            self._where = self._ray.get(self._placed)
        except self._ray.exceptions.RayError as error:
            self._note_loss(error)
        return True

    def events(self, request: str) -> Iterator[Event]:
        """Also ends if the actor or its node is lost."""
        if self._why_lost:
            return
        try:
            stream = self._host.events.options(num_returns="streaming").remote(request)
            while True:
                if not self._ray.wait([stream], timeout=_REPLY_SECONDS)[0]:
                    self._require_head()
                elif (event := next(stream, None)) is None:
                    return
                else:
                    yield self._ray.get(event)
        except self._ray.exceptions.RayError as error:
            self._note_loss(error)

    @property
    def account(self) -> str:
        return f"`ray status` ({self._why_lost})" if self._why_lost else self._where

    @property
    def died_of_its_step(self) -> bool:
        """True only if the actor still answers."""
        if self._why_lost:
            return False
        with contextlib.suppress(self._ray.exceptions.RayError):
            reply = self._host.died_of_its_step.remote()
            return bool(self._ray.get(reply, timeout=2 * _REPLY_SECONDS))
        return False

    def ask_to_end(self) -> None:
        if not self._why_lost and not self._head.is_lost:
            self._host.ask_to_end.remote()

    def close(self) -> None:
        if self._head.is_lost:  # Ray then ends the nodes and all their processes
            return
        if self._where and not self._why_lost:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.get(self._host.close.remote(), timeout=END_SECONDS + _REPLY_SECONDS)
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._host)

    def _require_head(self) -> None:
        driver = self._ray.get_runtime_context()

        def is_alive() -> bool:
            living = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
            return driver.get_node_id() in living

        self._head.require(driver.gcs_address, is_alive)

    def _note_loss(self, error: Exception) -> None:
        self._why_lost = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"


class WorkerHost:
    """Ray actor that forwards requests to a worker process and streams its events.

    Ray chooses the slot's GPUs and lists them in CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, slot: Slot, execution: str, num_gpus: int) -> None:
        settings = Execution.model_validate_json(execution)
        if not (settings.home / "artifacts").is_dir():  # every run creates it at its start
            raise StoreError(
                f"LCE_HOME {settings.home} on {socket.gethostname()}",
                "a folder without a store",
                "the store of the run, on a file system that all nodes share",
                "mount this file system under the same path on every node",
            )
        self._leases = contextlib.ExitStack()
        # Ray separates only its own actors. Leases keep other runs on this host off the GPUs.
        gpus = self._leases.enter_context(leased_gpus(num_gpus, num_gpus)) if num_gpus else []
        self._worker = WorkerProcess(Slot(slot.places, tuple(gpus)), settings)

    def whereabouts(self) -> str:
        return f"{self._worker.log} of {socket.gethostname()}"

    def events(self, request: str) -> Iterator[Event]:
        yield from self._worker.events(request)

    def died_of_its_step(self) -> bool:
        return self._worker.died_of_its_step

    def ask_to_end(self) -> None:
        self._worker.ask_to_end()

    def close(self) -> None:
        self._worker.close()
        self._leases.close()
