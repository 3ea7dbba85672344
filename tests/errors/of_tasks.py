"""Provocations of tasks."""

from __future__ import annotations

import contextlib
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
from tasks.tracking import project
from tasks.units import compute
from tasks.workers import Pool, Slot, Worker, close_pools
from tests.support.free_steps import free_step
from tests.support.provocations import Place, Table

PROVOCATIONS = Table()
provokes = PROVOCATIONS


def execution(place: Place, **changes: Any) -> Any:
    return make_execution({"home": place.folder, "slots": 1, "device": "cpu", **changes})


@provokes("tasks/gpus.py", "visible GPUs")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with leased_gpus(least=2, most=2):
        pass


@provokes("tasks/tracking.py", "no plan")
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
        compute(Unit("orphan", "cell", (orphan,)).to_json(), settings)
    finally:
        close_pools()


@contextlib.contextmanager
def worker(place: Place) -> Any:
    """A worker, killed before it answers."""
    found = Worker(Slot(0), execution(place))
    try:
        yield found
    finally:
        found.close()


def kill(found: Worker) -> None:
    """Kills the worker below its supervisor, once it is there."""
    while not (below := psutil.Process(found._process.pid).children()):
        time.sleep(0.05)
    for process in below:
        process.kill()
    found._process.wait(30)


@provokes("tasks/workers.py", "steps to go", slow=True)
def _(place: Place) -> None:
    with worker(place) as found:
        send = found._send
        place.patch.setattr(found, "_send", lambda line: (send(line), kill(found)))
        found.run([free_step("rows", "toy", {}, {})], print)


@provokes("tasks/workers.py", "takes no requests", slow=True)
def _(place: Place) -> None:
    with worker(place) as found:
        kill(found)
        found.run([free_step("rows", "toy", {}, {})], print)


@provokes("tasks/workers.py", "no GPU is visible")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "")
    Pool(execution(place).model_copy(update={"device": "cuda"}))
