"""What an actor is: the worker process of a slot, on the node that Ray gave it."""

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
    """Passes on what is asked of a worker and what it answers; made by Ray in a process of its own.

    The worker lies below a supervisor, so it ends when this process does, however that ends.

    Args:
      slot: `Slot.to_json`, of the driver's pool.
      execution: how to compute, as JSON.
      num_gpus: GPUs that Ray took for it, which it shows in CUDA_VISIBLE_DEVICES.

    Raises:
      StoreError: the driver's store is not on this node.
    """

    def __init__(self, slot: dict[str, Any], execution: str, num_gpus: int) -> None:
        how = Execution.model_validate_json(execution)
        if not (how.home / "artifacts").is_dir():  # which every run makes before it computes
            raise StoreError(
                f"LCE_HOME {how.home} on {socket.gethostname()}",
                "no store",
                "the store of the run, on a file system that all nodes share",
                "mount it on every node under the same name",
            )
        self._leases = contextlib.ExitStack()
        # Ray keeps its own actors apart; runs without Ray on the same host know of leases only.
        gpus = self._leases.enter_context(leased_gpus(num_gpus, num_gpus)) if num_gpus else []
        here = Slot(Slot.from_json(slot).places, tuple(gpus))
        self._worker = WorkerProcess(here, how)

    def whereabouts(self) -> str:
        """Host and log, for people."""
        return f"{self._worker.log} of {socket.gethostname()}"

    def answers(self, request: str) -> Iterator[Event]:
        """See `Worker.answers`."""
        yield from self._worker.answers(request)

    def died_of_its_step(self) -> bool:
        """See `Worker.died_of_its_step`."""
        return self._worker.died_of_its_step

    def ask_to_end(self) -> None:
        """See `Worker.ask_to_end`."""
        self._worker.ask_to_end()

    def close(self) -> None:
        """Ends the worker and frees its GPUs."""
        self._worker.close()
        self._leases.close()
