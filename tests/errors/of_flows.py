import contextlib
import http.server
import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import yaml
from filelock import FileLock
from rich.console import Console

from flows.locking import check_lock, write_lock
from flows.pulling import in_threads
from flows.request import compile_request
from flows.runs.display import TerminalDisplay
from flows.runs.scheduling import Scheduler
from flows.selection import (
    require_models,
    require_same_plugins,
    require_work,
    select_cells,
)
from flows.servers import temporary_server
from flows.servers.daemons import ask, wait_until
from flows.servers.ports import require_free
from flows.settings import make_execution, named_folders, study_path
from lce.commands.keeping import verify
from lce.keeping.cleaning import clean
from lce.keeping.packing import pack_study
from lce.keeping.verifying import verify_study
from lce.plugins.authoring import check_plugins, new_plugin, require_assertions
from lce.rope.inspection import inspect_method
from lce.views.planning import inspect_study
from lce.views.status_view import watch
from lce_core.errors import ServiceError, SpecError, StoreError
from lce_core.execution import Execution
from lce_core.models import MODELS
from lce_core.store.artifacts import Store
from lce_core.store.plugin_code import PluginChange
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.pricing.calibration import Predicted
from lce_core.study.progress import StepState
from lce_core.study.study_file import load_study, parse_study
from lce_core.study.units import Unit
from tasks.run_progress import RunProgress
from tasks.verification import home_aside
from tasks.workers import Pool
from tests.errors.files import write
from tests.support.errors.provocations import Place, provokes
from tests.support.free_steps import free_step


def on_gpus(place: Place, visible: str, **options: Any) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", visible)
    make_execution({"device": "cuda", **options})


provokes(SpecError, "execution.device")(lambda place: on_gpus(place, ""))
provokes(SpecError, "execution.processes: got 1")(lambda place: on_gpus(place, "0", processes=2))
provokes(SpecError, "a.yaml: got [1]")(
    lambda place: make_execution({}, write(place, "a.yaml", "- 1") / "a.yaml")
)
provokes(SpecError, "a.yaml")(
    lambda place: make_execution({}, write(place, "a.yaml", b"\xff") / "a.yaml")
)
provokes(SpecError, "--data-folder: got 'pg19")(lambda _: named_folders(["pg19"], "--data-folder"))
for name, folder in (("pg91", ""), ("pg19", "/gone")):
    provokes(SpecError, f"--data-folder: got {folder or 'pg91='}")(
        lambda _, name=name, folder=folder: compile_request(
            "smoke", make_execution({"data_folders": {name: folder}})
        )
    )


def smoke() -> StudyPlan:
    return compile_study(load_study(study_path("smoke")), {})


@provokes(SpecError, "--select")
def _(place: Place) -> None:
    content = yaml.safe_load(study_path("smoke").read_text(encoding="utf-8"))
    content["benchmarks"][0]["methods"] = ["none"]
    plan = compile_study(parse_study(yaml.safe_dump(content), "my.yaml"), {})
    other = next(one.method for one in plan.cells if one.method != "none")
    select_cells(plan, f"benchmark={content['benchmarks'][0]['name']},method={other}")


@provokes(SpecError, "methods/mine VERSION 1")
def _(_: Place) -> None:
    change = PluginChange(plugin="methods/mine", version=1, was="a", now="b", file="mine.py")
    state = StepState("missing", str(change), "stale", plugin_changes=frozenset({change}))
    require_same_plugins({"fingerprint": state})


provokes(SpecError, "my.yaml")(
    lambda _: require_work(StudyPlan(smoke().study, {}, smoke().cells), "my.yaml")
)


@provokes(SpecError, "smollm2_135m_q4")
def _(place: Place) -> None:
    plan = smoke()
    model = MODELS.parse({"name": "smollm2_135m_q4"}, "base_models[0]")
    study = plan.study.model_copy(update={"base_models": (model,)})
    cell = replace(plan.cells[0], base_model="smollm2_135m_q4")
    assert cell.step
    states = {cell.step.fingerprint: StepState("missing", "new")}
    require_models(StudyPlan(study, {}, (cell,)), states, Execution(home=place.folder))


@provokes(SpecError, "--port: got 80")
def _(place: Place) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    place.patch.setattr("socket.socket.bind", refuse)
    require_free(80, "--port")


@provokes(StoreError, "base toy")
def _(place: Place) -> None:
    parent = free_step("rows", "toy", {}, {})
    child = free_step("base", "toy", {}, {"rows": parent})
    how = make_execution({"home": place.folder, "slots": 1, "device": "cpu"})
    unit = Unit("base toy", "base", (child,))
    predicted = {child.fingerprint: Predicted(1.0, ("base",))}
    progress = RunProgress([unit], predicted, (), (), 1)
    display = TerminalDisplay(progress, Console(quiet=True))
    seconds = {child.fingerprint: 1.0}
    with Pool(how) as pool:
        submit = in_threads(pool, progress, threading.Event())
        Scheduler([unit], set(), pool, display, submit, seconds).run()


def waits(place: Place, *, alive: bool) -> None:
    log = write(place, "server.log", "the last line") / "server.log"
    wait_until("server", lambda: False, lambda: alive, log, 0.0)


for alive in (False, True):
    provokes(ServiceError, "server")(lambda place, alive=alive: waits(place, alive=alive))


class _Refuses(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(401 if self.path.endswith("/health") else 500)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    """The address of a server that refuses one request."""
    with http.server.HTTPServer(("127.0.0.1", 0), _Refuses) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/api"


@provokes(ServiceError, "HTTP 500")
def _(_: Place) -> None:
    with refusing() as address:
        ask(f"{address}/work_pools/a")


@provokes(ServiceError, "which answers with status 401")
def _(place: Place) -> None:
    with refusing() as address:
        place.patch.setenv("PREFECT_API_URL", address)
        temporary_server.TemporaryServer(place.folder).start()


def ready(place: Place, *, taken: bool) -> None:
    place.patch.delenv("PREFECT_API_URL", raising=False)
    place.patch.setattr(temporary_server, "START_SECONDS", 0.0)
    server = temporary_server.TemporaryServer(place.folder)
    other = FileLock(server._lock.lock_file, thread_local=False)
    with other if taken else contextlib.nullcontext():
        try:
            server.start()
            server.wait_ready()
        finally:
            server.close()


provokes(ServiceError, ".starting.lock")(lambda place: ready(place, taken=True))
provokes(ServiceError, "Prefect's server", slow=True)(lambda place: ready(place, taken=False))


def here(place: Place) -> Execution:
    return make_execution({"home": place.folder / "home", "device": "cpu"})


provokes(SpecError, "study.lock")(
    lambda place: write_lock("smoke", here(place), place.folder / "none" / "study.lock")
)
provokes(SpecError, "study.lock")(
    lambda place: check_lock("smoke", here(place), place.folder / "study.lock")
)


def smoke_of_a_folder(place: Place) -> str:
    """Write the study smoke with texts of a folder; return its path."""
    content = yaml.safe_load(study_path("smoke").read_text(encoding="utf-8"))
    content["corpus"] = {"name": "jsonl_folder", "folder": "text", "domain_names": ["code"]}
    return str(write(place, "mine.yaml", yaml.safe_dump(content)) / "mine.yaml")


@provokes(SpecError, "study.lock: got 17")
def _(place: Place) -> None:
    write(place, "text/a.jsonl", '{"text": "one two"}\n')
    file = smoke_of_a_folder(place)
    folders = {"data_folders": {"text": place.folder / "text"}}
    write_lock(file, make_execution({"home": place.folder, "device": "cpu", **folders}), None)
    write_lock(file, here(place), None)


@provokes(SpecError, "--prompt-gb: got 1e+300")  # finite in gigabytes, infinite in bytes
def _(place: Place) -> None:
    Store(place.folder).prepare()
    clean(place.folder, dry_run=True, locks=[], prompt_gigabytes=1e300)


@provokes(SpecError, "--out")
def _(place: Place) -> None:
    file = write(place, "taken", "") / "taken"
    pack_study("smoke", here(place), file, parcel="60MB", python="3.12", has=())


@provokes(SpecError, "study smoke: got 12")
def _(place: Place) -> None:
    Store(place.folder / "home").prepare()
    watch(inspect_study(smoke_of_a_folder(place), here(place)), Console(file=io.StringIO()))


provokes(SpecError)(
    lambda place: clean(place.folder, dry_run=False, locks=[], prompt_gigabytes=1.0)
)


@provokes(SpecError, "smoke")
def _(place: Place) -> None:
    how = {"sample": "5%", "seed": 0, "select": "", "tolerance": 0.0}
    verify_study("smoke", here(place), **how)  # type: ignore[arg-type]


@provokes(SpecError, "lce verify")
def _(place: Place) -> None:
    names = ("slots", "device", "micro_batch_tokens", "execution")
    folders = ("model_folder", "data_folder", "plugins")
    verify(study="", files=False, **dict.fromkeys(names), **{name: [] for name in folders})  # type: ignore[call-arg]


@provokes(SpecError)
def _(place: Place) -> None:
    store = Store(place.folder)
    store.prepare()
    with home_aside(store), home_aside(store):
        pass


provokes(SpecError, "recipe")(lambda place: new_plugin("recipe", "mine", place.folder))
provokes(SpecError)(lambda place: check_plugins(place.folder, {}))
provokes(SpecError, "lce check")(lambda _: require_assertions(1))
provokes(SpecError, "--head: got 0")(
    lambda _: inspect_method("pi", [], "toy_llama", 512, None).head(0)
)
provokes(SpecError, "scale")(lambda _: inspect_method("pi", ["scale"], "toy_llama", 512, None))
provokes(SpecError, "--set scale: got '[")(
    lambda _: inspect_method("pi", ["scale=["], "toy_llama", 512, None)
)
provokes(SpecError, "pi.layers: got layer 99 of")(
    lambda _: inspect_method("pi", ["layers=[99]"], "toy_llama", 512, None)
)
