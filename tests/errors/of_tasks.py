from typing import Any

from flows.settings import make_execution
from lce_core.errors import ServiceError, SpecError, StoreError
from lce_core.store.artifacts import Store
from tasks.ray_engine import cluster
from tasks.ray_engine.workers import WorkerHost
from tasks.slots import Slot
from tasks.tracking import project
from tasks.workers import Pool
from tests.support.errors.provocations import Place, provokes
from tests.support.ports import unused_port


def execution(place: Place, **changes: Any) -> Any:
    return make_execution({"home": place.folder, "slots": 1, "device": "cpu", **changes})


@provokes(SpecError, "RAY_ADDRESS")
def _(place: Place) -> None:
    place.patch.setenv("RAY_ADDRESS", "ray://127.0.0.1:10001")
    cluster.connected("ray")


@provokes(ServiceError, "no answer for 0")
def _(place: Place) -> None:
    place.patch.setattr(cluster, "LOST_SECONDS", 0)
    cluster.Head().require(f"127.0.0.1:{unused_port()}", bool)


provokes(StoreError)(lambda place: WorkerHost(Slot((0,)), execution(place).model_dump_json(), 0))
provokes(SpecError, "toy")(lambda place: project(Store(place.folder), "toy"))


@provokes(SpecError, "execution.device")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "")
    Pool(execution(place).model_copy(update={"device": "cuda"})).open()
