"""The Ray actor of a slot, which runs a worker process on the node that Ray chose."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from lce_core.errors import StoreError
from lce_core.execution import Execution
from tasks.gpus import leased_gpus
from tasks.slots import Slot
from tasks.worker_process import Event, WorkerProcess


class WorkerHost:
    """Ray actor that forwards requests to a worker process and streams its events.

    The worker runs under `tasks.supervisor` and therefore ends with the actor's process. Ray
    chooses the slot's GPUs and lists them in CUDA_VISIBLE_DEVICES.

    Raises:
      StoreError: if the store of the run (LCE_HOME) does not exist on this node.
    """

    def __init__(self, slot: dict[str, Any], execution: str, num_gpus: int) -> None:
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
        local = Slot(Slot.from_json(slot).places, tuple(gpus))
        self._worker = WorkerProcess(local, settings)

    def whereabouts(self) -> str:
        """Return "LOG of HOST", where the worker's log is."""
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
