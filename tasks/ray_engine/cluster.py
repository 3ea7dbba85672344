"""The Ray cluster of a run: connect, query its resources, detect a lost head, disconnect."""

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

import psutil

from lce_core.environment import allocator_settings, for_child
from lce_core.errors import ServiceError, SpecError
from lce_core.execution import LOCAL, Execution
from tasks.machines import Machines, this_machine
from tasks.slots import Slot, Slots, slot_counts

REACH_SECONDS = 5.0
"""Timeout for connecting to the head node."""
LOST_SECONDS = 30.0
"""Time without an answer of the head node after which the cluster is lost."""
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Without this, a Ray call after shutdown would start a new cluster.
    "RAY_ENABLE_AUTO_CONNECT": "0",
    "RAY_NUM_REDIS_GET_RETRIES": "2",
}
_FORWARDED = ("HF_", "LCE_", "PYTHONPATH", "TRANSFORMERS_")
"""Prefixes of the environment variables that workers on other nodes receive."""


def connected(engine: str) -> Any:
    """Return the module `ray`, connected to the cluster that the engine names.

    "ray" is the cluster at $RAY_ADDRESS or on this machine. Ray Client (ray://...) is refused,
    because it cannot stream the workers' events.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise ServiceError(
            f"--engine {engine}",
            "a Python environment without the package ray",
            "the extra `ray` of lce on all nodes",
            "run `make install` in the checkout of every node",
        ) from None
    if not ray.is_initialized():
        _connect(ray, engine)
    return ray


def machines_for(execution: Execution) -> Machines:
    if execution.engine == LOCAL:
        return this_machine(execution)
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
def slots(execution: Execution, head: Head) -> Iterator[Slots]:
    """Yield the slots of the whole cluster; disconnect from Ray at the end.

    Ray chooses a slot's node and GPUs, so the numbers in `Slot.gpus` name no devices.
    """
    nodes = machines_for(execution)
    try:
        counts = slot_counts(execution, nodes.gpus)
        yield Slots(counts, [str(number) for number in range(nodes.num_gpus)])
    finally:
        ray = importlib.import_module("ray")
        if head.is_lost:  # ray.shutdown would try to contact the lost head
            atexit.unregister(ray.shutdown)
        else:
            ray.shutdown()


class Head:
    """Detects that the cluster's head node no longer answers. Ray itself would wait forever."""

    def __init__(self) -> None:
        self.is_lost = False
        self._silent_since: float | None = None

    def require(self, address: str, is_node_alive: Callable[[], bool]) -> None:
        """Check that the head answers, and that Ray is alive on the node of this process.

        This process reaches the other nodes only through Ray on its own node. A ServiceError ends
        the run once every check of the last `LOST_SECONDS` has failed.
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
                    "a head node that answers until the run ends",
                    "restart the cluster, then repeat the command: finished steps are kept",
                ) from None


def needs_of(slot: Slot, execution: Execution) -> dict[str, int]:
    return {"num_gpus": len(slot.gpus), "num_cpus": len(slot.places) * execution.threads}


def environment() -> dict[str, dict[str, str]]:
    """Return the actors' `runtime_env`; torch's allocator gets settings as in a local worker."""
    here = for_child(os.environ)
    forwarded = {name: value for name, value in here.items() if name.startswith(_FORWARDED)}
    return {"env_vars": {**forwarded, **allocator_settings(here)}}


def _connect(ray: Any, engine: str) -> None:
    address = engine.partition(":")[2] or os.environ.get("RAY_ADDRESS") or "auto"
    if "://" in address:
        raise SpecError(
            "RAY_ADDRESS",
            f"{address}, an address of Ray Client, which lce cannot use",
            "HOST:PORT of the cluster's head",
            "run on a node of the cluster, with --engine ray:HOST:PORT or RAY_ADDRESS=HOST:PORT",
        )
    # When a node dies, Ray would print pages of its log into the live view.
    internals: Any = importlib.import_module("ray._private.worker")
    internals.print_to_stdstream = _discard
    before = signal.getsignal(signal.SIGTERM)
    try:
        if address == "auto":
            # Find the address as Ray does, but test it before Ray uses it: if a dead cluster left
            # the address behind, Ray would retry for a long time.
            services = importlib.import_module("ray._private.services")
            address = services.canonicalize_bootstrap_address_or_die(address)
            _require_own(address)
        _require_answer(address)
        ray.init(
            address,
            configure_logging=False,
            logging_level=logging.CRITICAL,
            log_to_driver=False,
        )
    # Ray raises RuntimeError if the cluster has other versions of Ray or Python, or if this machine
    # is not one of its nodes.
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ServiceError(
            f"--engine {engine}",
            f"no Ray cluster at {address} ({str(error).strip().splitlines()[0]})",
            "a running Ray cluster that contains this machine",
            "start one with `ray start --head --disable-usage-stats --include-dashboard=false`",
        ) from None
    finally:
        # Ray installs a SIGTERM handler that would end this process before it releases its leases.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _require_own(address: str) -> None:
    """Raise a ServiceError if this user runs no node of a cluster that Ray has found by itself.

    Ray searches all users' processes and a file that any user can write. The owner of the nodes can
    read the actors' variables, such as HF_TOKEN, and this process unpickles the actors' replies.
    """
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_own = process.uids().effective == os.geteuid()
            if is_own and f"--gcs-address={address}" in process.cmdline():
                return
    raise ServiceError(
        "--engine ray",
        f"only the Ray cluster at {address}, of which you run no node here",
        "a cluster of your own, because its owner can read your tokens and run code as you",
        f"start one with `ray start`, or name this one if you trust it: --engine ray:{address}",
    )


def _discard(data: object, ignore_prefix: bool) -> None:
    """Discard output of actors, which Ray would print here; the workers' logs contain it."""


def _require_answer(address: str) -> None:
    """Test that the head accepts connections; Ray itself would retry for minutes."""
    host, _, port = address.rpartition(":")
    with contextlib.closing(socket.create_connection((host, int(port)), REACH_SECONDS)):
        pass
