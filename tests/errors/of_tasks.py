"""Provocations of tasks."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import psutil

from flows.settings import (
    make_execution,
    study_path,
)
from lce_core.store.artifacts import Store
from lce_core.study.plan import compile_study
from lce_core.study.study_file import load_study
from lce_core.study.units import Unit
from tasks.gpus import leased_gpus
from tasks.ray_engine import cluster
from tasks.ray_engine.host import WorkerHost
from tasks.slots import Slot
from tasks.tracking import project
from tasks.units import compute
from tasks.worker_process import WorkerProcess
from tasks.workers import Pool, close_pools
from tests.support.errors.provocations import Place, Table
from tests.support.free_steps import free_step
from tests.support.ports import unused_port

PROVOCATIONS = Table()
provokes = PROVOCATIONS


def execution(place: Place, **changes: Any) -> Any:
    return make_execution({"home": place.folder, "slots": 1, "device": "cpu", **changes})


@provokes("tasks/gpus.py", "visible GPUs")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with leased_gpus(least=2, most=2):
        pass


@provokes("tasks/ray_engine/cluster.py", "no package ray")
def _(place: Place) -> None:
    place.patch.setitem(sys.modules, "ray", None)
    cluster.connected("ray")


@provokes("tasks/ray_engine/cluster.py", "no Ray cluster")
def _(_: Place) -> None:
    cluster.connected(f"ray:127.0.0.1:{unused_port()}")


@provokes("tasks/ray_engine/cluster.py", "no node of a cluster")
def _(place: Place) -> None:
    place.patch.setenv("RAY_ADDRESS", "ray://127.0.0.1:10001")
    cluster.connected("ray")


@provokes("tasks/ray_engine/cluster.py", "no answer for")
def _(place: Place) -> None:
    place.patch.setattr(cluster, "LOST_SECONDS", 0)
    cluster.Head().require(f"127.0.0.1:{unused_port()}", bool)


@provokes("tasks/ray_engine/host.py", "no store")
def _(place: Place) -> None:
    WorkerHost(Slot((0,)).to_json(), execution(place).model_dump_json(), 0)


@provokes("tasks/tracking/projection.py", "no plan")
def _(place: Place) -> None:
    project(Store(place.folder), "toy")


@provokes("tasks/units.py", "failed step", slow=True)
def _(place: Place) -> None:
    store = Store(place.folder)
    store.prepare()
    plan = compile_study(load_study(study_path("smoke")), {})
    orphan = next(step for step in plan.steps.values() if step.kind == "cell")
    try:
        settings = execution(place).model_dump(mode="json")
        compute(Unit("orphan", "cell", (orphan,)).to_json(), settings, Slot((0,)).to_json())
    finally:
        close_pools()


@contextlib.contextmanager
def worker(place: Place) -> Any:
    """A worker, killed before it answers."""
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


@provokes("tasks/worker_process.py", "steps to go", slow=True)
def _(place: Place) -> None:
    with worker(place) as found:
        send = found._send
        place.patch.setattr(found, "_send", lambda line: (send(line), kill(found)))
        found.run([free_step("rows", "toy", {}, {})], print)


@provokes("tasks/worker_process.py", "takes no requests", slow=True)
def _(place: Place) -> None:
    with worker(place) as found:
        kill(found)
        found.run([free_step("rows", "toy", {}, {})], print)


@provokes("tasks/workers.py", "no GPU is visible")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "")
    Pool(execution(place).model_copy(update={"device": "cuda"}))


@provokes("lce_core/execution.py", "ray:HOST:PORT")
def _(place: Place) -> None:
    execution(place, engine="ray://head:10001")
