"""Provocations of flows."""

from __future__ import annotations

import contextlib
import http.server
import threading
from typing import Any

from filelock import FileLock
from prefect.logging import disable_run_logger
from rich.console import Console

from flows import prefect_plugin, running, services, study, temporary_server
from flows.checking import check_plugins, require_assertions
from flows.daemons import Service, ask, wait_until
from flows.display import TerminalDisplay
from flows.ports import free_port, require_free
from flows.rope.inspection import inspect_method
from flows.run_progress import RunProgress
from flows.scaffolding import new_plugin
from flows.scheduling import run_units
from flows.selection import require_models, require_work, select_cells
from flows.settings import (
    disk_full,
    existing_folders,
    make_execution,
    named_folders,
    study_path,
)
from lce_core.errors import NonFiniteError
from lce_core.execution import Execution
from lce_core.models import MODELS
from lce_core.store.artifacts import Store
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.study_file import load_study
from lce_core.study.time_left import Predicted
from lce_core.study.units import Unit
from tasks.board import BOARD
from tasks.workers import close_pools
from tests.support.free_steps import free_step
from tests.support.provocations import Place, Table

PROVOCATIONS = Table()
provokes = PROVOCATIONS


@provokes("flows/settings.py", "no such file")
def _(_: Place) -> None:
    study_path("none.yaml")


@provokes("flows/settings.py", "the name of a shipped study, or")
def _(_: Place) -> None:
    study_path("toyy")


@provokes("flows/settings.py", "free disk space")
def _(place: Place) -> None:
    raise disk_full(place.folder, "No space left on device")


@provokes("flows/settings.py", "no GPU is visible")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "")
    make_execution({"device": "cuda"})


@provokes("flows/settings.py", "visible GPUs")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "0")
    make_execution({"device": "cuda", "processes": 2})


@provokes("flows/settings.py", "write key: value")
def _(place: Place) -> None:
    (place.folder / "a.yaml").write_text("- 1", encoding="utf-8")
    make_execution({}, place.folder / "a.yaml")


@provokes("flows/settings.py", "a readable execution file")
def _(place: Place) -> None:
    (place.folder / "a.yaml").write_text("{", encoding="utf-8")
    make_execution({}, place.folder / "a.yaml")


@provokes("flows/settings.py", "the form NAME=FOLDER")
def _(_: Place) -> None:
    named_folders(["pg19"], "--data-folder")


@provokes("flows/settings.py", "{pair}, which is no folder")
def _(place: Place) -> None:
    named_folders([f"pg19={place.folder / 'none'}"], "--data-folder")


@provokes("flows/settings.py", "{folder}, which is no folder")
def _(place: Place) -> None:
    existing_folders([place.folder / "none"], "--plugins")


def smoke() -> StudyPlan:
    return compile_study(load_study(study_path("smoke")), {})


@provokes("flows/selection.py", "of a cell of")
def _(_: Place) -> None:
    select_cells(smoke(), "method=yran")


@provokes("flows/selection.py", "joined by commas")
def _(_: Place) -> None:
    select_cells(smoke(), "yarn")


@provokes("flows/selection.py", "no cell that can be computed here")
def _(_: Place) -> None:
    plan = smoke()
    require_work(StudyPlan(plan.study, {}, plan.cells), "my.yaml")


@provokes("flows/selection.py", "weights that were fetched once")
def _(place: Place) -> None:
    plan = smoke()
    model = MODELS.parse({"name": "smollm2_135m_q4"}, "base_models[0]")
    study = plan.study.model_copy(update={"base_models": (model,)})
    require_models(StudyPlan(study, {}, ()), Execution(home=place.folder))


@provokes("flows/ports.py", "from 1 to 65535")
def _(_: Place) -> None:
    require_free(0, "--port")


@provokes("flows/ports.py", "of the administrator's")
def _(place: Place) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    place.patch.setattr("socket.socket.bind", refuse)
    require_free(80, "--port")


@provokes("flows/ports.py", "listens")
def _(_: Place) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        require_free(server.server_port, "--port")


@provokes("flows/scheduling.py", "that nothing computes")
def _(place: Place) -> None:
    parent = free_step("rows", "toy", {}, {})
    child = free_step("base", "toy", {}, {"rows": parent})
    how = make_execution({"home": place.folder, "slots": 1, "device": "cpu"})
    unit = Unit("base toy", "base", (child,))
    try:
        predicted = {child.fingerprint: Predicted(1.0, ("base",))}
        progress = RunProgress([unit], predicted, 0, 1, BOARD)
        display = TerminalDisplay(progress, Console(quiet=True))
        run_units([unit], set(), how, display)
    finally:
        close_pools()


@provokes("flows/study.py", "failed unit", slow=True)
def _(place: Place) -> None:
    store = Store(place.folder)
    store.prepare()
    error = NonFiniteError("step 3", "loss nan", "a finite loss", "look")
    for step in smoke().steps.values():
        store.note_failure(step, error, {})
    place.patch.setattr(study, "record_study", study.record_study.fn)
    with disable_run_logger():
        study.controlled_study.fn("smoke", execution={"home": place.folder, "device": "cpu"})


@provokes("flows/prefect_plugin.py", "clients with the method")
def _(place: Place) -> None:
    place.patch.setattr(prefect_plugin, "_METHOD", "moved_by_prefect")
    prefect_plugin.is_active()


def waits(place: Place, *, alive: bool) -> None:
    log = place.folder / "server.log"
    log.write_text("the last line", encoding="utf-8")
    wait_until("server", lambda: False, lambda: alive, log, 0.0)


@provokes("flows/daemons.py", "ended while starting")
def _(place: Place) -> None:
    waits(place, alive=False)


@provokes("flows/daemons.py", "no answer after")
def _(place: Place) -> None:
    waits(place, alive=True)


class _Refuses(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(500)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@provokes("flows/daemons.py", "an answer of Prefect's server")
def _(_: Place) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), _Refuses) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        ask(f"http://127.0.0.1:{server.server_port}/api/work_pools/a")


def prefect_server() -> Any:
    fields = dict.fromkeys(Service.__dataclass_fields__)
    fields |= {"name": "server", "url": f"http://127.0.0.1:{free_port()}/api"}
    return Service(**fields)  # type: ignore[arg-type]


@provokes("flows/services.py", "the checkout of this project")
def _(place: Place) -> None:
    place.patch.setattr(services, "_ROOT", place.folder)
    services._deploy(place.folder, prefect_server())


@provokes("flows/services.py", "a deployment on this server", slow=True)
def _(place: Place) -> None:
    services._prefect(place.folder, prefect_server(), "no-such-command")


@provokes("flows/running.py", "lives as long as the run")
def _(place: Place) -> None:
    server = temporary_server.TemporaryServer(place.folder)
    server.url = f"http://127.0.0.1:{free_port()}/api"
    if cause := running._cause(ConnectionError(), place.folder, server):
        raise cause


@provokes("flows/temporary_server.py", "where no Prefect server answers")
def _(place: Place) -> None:
    place.patch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")
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


@provokes("flows/temporary_server.py", "that has been starting")
def _(place: Place) -> None:
    ready(place, taken=True)


@provokes("flows/temporary_server.py", "a process that did not start", slow=True)
def _(place: Place) -> None:
    ready(place, taken=False)


# Flows: new plug-ins


@provokes("flows/scaffolding.py", "choose one of them")
def _(place: Place) -> None:
    new_plugin("corpus", "mine", place.folder)


@provokes("flows/scaffolding.py", "letters, digits and underscores")
def _(place: Place) -> None:
    new_plugin("method", "my-method", place.folder)


@provokes("flows/scaffolding.py", "a name that no {kind} has")
def _(place: Place) -> None:
    new_plugin("method", "yarn", place.folder)


@provokes("flows/scaffolding.py", "a file of that name")
def _(place: Place) -> None:
    new_plugin("method", "mine", place.folder)
    new_plugin("method", "mine", place.folder)


@provokes("lce_core/registry.py", "a name that no other has")
def _(place: Place) -> None:
    file = place.folder / "methods" / "yarn.py"
    file.parent.mkdir()
    file.touch()
    check_plugins(file, {})


@provokes("flows/checking.py", "no plug-in")
def _(place: Place) -> None:
    check_plugins(place.folder, {})


@provokes("flows/checking.py", "leaves out assertions")
def _(_: Place) -> None:
    require_assertions(1)


@provokes("flows/rope/inspection.py", "a head with frequencies of its own")
def _(_: Place) -> None:
    inspect_method("pi", [], "toy_llama", 512, None).head(0)


@provokes("flows/rope/inspection.py", "the form KEY=VALUE")
def _(_: Place) -> None:
    inspect_method("pi", ["scale"], "toy_llama", 512, None)


@provokes("flows/rope/inspection.py", "a value as in a study file")
def _(_: Place) -> None:
    inspect_method("pi", ["scale=["], "toy_llama", 512, None)
