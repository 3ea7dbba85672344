"""Provocations of tasks."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psutil

from flows.settings import (
    make_execution,
)
from lce_core.errors import ServiceError, SpecError, StoreError, WorkerLostError
from lce_core.store.artifacts import Store
from tasks.gpus import leased_gpus
from tasks.ray_engine import cluster
from tasks.ray_engine.host import WorkerHost
from tasks.slots import Slot
from tasks.tracking import project
from tasks.worker_process import WorkerProcess
from tasks.workers import Pool
from tests.support.errors.provocations import Place, provokes
from tests.support.free_steps import free_step
from tests.support.ports import unused_port


def execution(place: Place, **changes: Any) -> Any:
    return make_execution({"home": place.folder, "slots": 1, "device": "cpu", **changes})


@provokes(SpecError, "execution.processes: got 1")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with leased_gpus(least=2, most=2):
        pass


@provokes(SpecError, "RAY_ADDRESS")
def _(place: Place) -> None:
    place.patch.setenv("RAY_ADDRESS", "ray://127.0.0.1:10001")
    cluster.connected("ray")


@provokes(ServiceError, "no answer for 0")
def _(place: Place) -> None:
    place.patch.setattr(cluster, "LOST_SECONDS", 0)
    cluster.Head().require(f"127.0.0.1:{unused_port()}", bool)


provokes(StoreError)(
    lambda place: WorkerHost(Slot((0,)).to_json(), execution(place).model_dump_json(), 0)
)
provokes(SpecError, "toy")(lambda place: project(Store(place.folder), "toy"))


@contextlib.contextmanager
def worker(place: Place) -> Any:
    """Start a worker, which the test kills before it returns a result."""
    found = WorkerProcess(Slot((0,)), execution(place))
    try:
        yield found
    finally:
        found.close()


def kill(found: WorkerProcess) -> None:
    """Kills the worker below its supervisor, once it is there."""
    while not (below := psutil.Process(found._process.pid).children()):
        time.sleep(0.05)
    for process in below:
        process.kill()
    found._process.wait(30)


@provokes(WorkerLostError, "worker", slow=True)
def _(place: Place) -> None:
    with worker(place) as found:
        kill(found)
        found.run([free_step("rows", "toy", {}, {})], print)


@provokes(SpecError, "execution.device")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "")
    Pool(execution(place).model_copy(update={"device": "cuda"})).open()
