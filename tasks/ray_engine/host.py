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

    The worker runs under a supervisor. Therefore it ends when the actor's process ends or dies.

    Args:
      slot: `Slot.to_json`, from the driver's pool.
      execution: settings of the computation, as JSON.
      num_gpus: number of GPUs that Ray reserved; Ray lists them in CUDA_VISIBLE_DEVICES.

    Raises:
      StoreError: if the driver's store does not exist on this node.
    """

    def __init__(self, slot: dict[str, Any], execution: str, num_gpus: int) -> None:
        settings = Execution.model_validate_json(execution)
        if not (settings.home / "artifacts").is_dir():  # every run creates it at its start
            raise StoreError(
                f"LCE_HOME {settings.home} on {socket.gethostname()}",
                "no store",
                "the store of the run, on a file system that all nodes share",
                "mount it on every node under the same name",
            )
        self._leases = contextlib.ExitStack()
        # Ray separates only its own actors. Leases keep other runs on this host off the GPUs.
        gpus = self._leases.enter_context(leased_gpus(num_gpus, num_gpus)) if num_gpus else []
        local = Slot(Slot.from_json(slot).places, tuple(gpus))
        self._worker = WorkerProcess(local, settings)

    def whereabouts(self) -> str:
        """Return the worker's log and host as text for users."""
        return f"{self._worker.log} of {socket.gethostname()}"

    def events(self, request: str) -> Iterator[Event]:
        """See `Worker.events`."""
        yield from self._worker.events(request)

    def died_of_its_step(self) -> bool:
        """See `Worker.died_of_its_step`."""
        return self._worker.died_of_its_step

    def ask_to_end(self) -> None:
        """See `Worker.ask_to_end`."""
        self._worker.ask_to_end()

    def close(self) -> None:
        """End the worker and release its GPUs."""
        self._worker.close()
        self._leases.close()
