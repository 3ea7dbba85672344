"""The Ray cluster that a run uses: entered, asked what it has, left."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from lce_core.errors import ServiceError, SpecError
from lce_core.execution import Execution
from tasks.machines import Machines
from tasks.own_code import python_path
from tasks.slots import Slot, Slots

REACH_SECONDS = 5.0
LOST_SECONDS = 30.0
"""Without an answer of its head a cluster is lost."""
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A call after the end would otherwise start a cluster of its own.
    "RAY_ENABLE_AUTO_CONNECT": "0",
    "RAY_NUM_REDIS_GET_RETRIES": "2",
}
_PASSED_ON = ("HF_", "LCE_", "TRANSFORMERS_")
"""Variables that a worker elsewhere gets as one here would."""


def connected(engine: str) -> Any:
    """The module `ray`, within the cluster that an engine names.

    Args:
      engine: "ray" for $RAY_ADDRESS, else the cluster of this machine; "ray:HOST:PORT".

    Raises:
      SpecError: an address of Ray Client, which streams no events.
      ServiceError: Ray is not installed, or no cluster answers there.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise ServiceError(
            f"--engine {engine}",
            "no package ray in this environment",
            "the extra ray",
            "run `make install` in the checkout, on all nodes",
        ) from None
    if not ray.is_initialized():
        _enter(ray, engine)
    return ray


def nodes_of(execution: Execution) -> Machines:
    """What the living nodes of an execution's cluster have for it; errors of `connected`."""
    ray = connected(execution.engine)
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    kinds = {name for node in nodes for name in node if name.startswith("accelerator_type:")}
    on_gpus = execution.device != "cpu"
    return Machines(
        gpus=tuple(int(node.get("GPU", 0)) * on_gpus for node in nodes),
        cpus=sum(int(node.get("CPU", 0)) for node in nodes),
        gpu_name=" ".join(kind.partition(":")[2] for kind in sorted(kinds)) if on_gpus else "",
    )


@contextlib.contextmanager
def slots(execution: Execution) -> Iterator[Slots]:
    """Slots of the whole cluster; leaves it at the end.

    Their places are numbers only: Ray decides where the actor of one lies.
    """
    nodes = nodes_of(execution)
    try:
        yield Slots(nodes.shape(execution), [str(number) for number in range(nodes.num_gpus)])
    finally:
        ray = importlib.import_module("ray")
        if HEAD.is_lost:  # it would be asked
            atexit.unregister(ray.shutdown)
        else:
            ray.shutdown()


class Head:
    """The head of the cluster that was entered; without it Ray waits for ever and says nothing."""

    def __init__(self) -> None:
        self.is_lost = False
        self._silent_since: float | None = None

    def require(self, address: str, is_node_alive: Callable[[], bool]) -> None:
        """Asks for an answer, and whether the driver's own node lives, by which it reaches others.

        Raises:
          ServiceError: neither for `LOST_SECONDS`; no step can be computed any more.
        """
        try:
            _require_answer(address)
            if not is_node_alive():
                raise ConnectionError("the node of this run has died")
            self._silent_since = None
        except OSError as error:
            now = time.monotonic()
            self._silent_since = self._silent_since or now
            self.is_lost |= now - self._silent_since >= LOST_SECONDS
            if self.is_lost:
                raise ServiceError(
                    f"Ray's head at {address}",
                    f"no answer for {LOST_SECONDS:.0f} s ({error})",
                    "a head that lives as long as the run",
                    "start the cluster again, then run again, which goes on where it was",
                ) from None


HEAD = Head()


def needs_of(slot: Slot, execution: Execution) -> dict[str, int]:
    """What the actor of a slot asks of its node: its GPUs, and its threads for each place."""
    return {"num_gpus": len(slot.gpus), "num_cpus": len(slot.places) * execution.threads}


def environment() -> dict[str, dict[str, str]]:
    """Of every actor: this code, and the variables that models and data depend on."""
    passed = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    return {"env_vars": {**passed, "PYTHONPATH": python_path()}}


def _enter(ray: Any, engine: str) -> None:
    address = engine.partition(":")[2] or os.environ.get("RAY_ADDRESS") or "auto"
    if "://" in address:
        raise SpecError(
            "RAY_ADDRESS",
            f"{address}, which is no node of a cluster",
            "HOST:PORT of the cluster's head",
            "run on a node of the cluster, with --engine ray:HOST:PORT or RAY_ADDRESS=HOST:PORT",
        )
    # Ray prints what ends a node, with pages of its log, in the middle of the live view.
    internals: Any = importlib.import_module("ray._private.worker")
    internals.print_to_stdstream = _dropped
    before = signal.getsignal(signal.SIGTERM)
    try:
        if address == "auto":
            # As Ray finds it, and by what it keeps of a cluster that is gone it would try for long.
            services = importlib.import_module("ray._private.services")
            address = services.canonicalize_bootstrap_address_or_die(address)
        _require_answer(address)
        ray.init(
            address,
            configure_logging=False,
            logging_level=logging.CRITICAL,
            log_to_driver=False,
        )
    # RuntimeError: other versions of Ray or Python there, or no node of the cluster here.
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ServiceError(
            f"--engine {engine}",
            f"no Ray cluster at {address} ({str(error).strip().splitlines()[0]})",
            "a cluster of which this machine is a node",
            "start one with `ray start --head --disable-usage-stats --include-dashboard=false`",
        ) from None
    finally:
        # Ray's own answer to SIGTERM would end this process before leases are given back.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _dropped(data: object, ignore_prefix: bool) -> None:
    """Takes the place of Ray's printing; actors' output is in their workers' logs anyway."""


def _require_answer(address: str) -> None:
    """Ray itself tries for minutes.

    Raises:
      OSError: nobody listens there.
    """
    host, _, port = address.rpartition(":")
    with contextlib.closing(socket.create_connection((host, int(port)), REACH_SECONDS)):
        pass
