"""Provocations of flows."""

from __future__ import annotations

import contextlib
import http.server
import io
import os
import threading
from dataclasses import replace
from typing import Any, cast

import yaml
from filelock import FileLock
from prefect.logging import disable_run_logger
from rich.console import Console

from flows import prefect_plugin, study
from flows.locking import check_lock, write_lock
from flows.plans.budget import Budget, within_budget
from flows.plans.plugin_changes import require_same_plugins
from flows.pulling import pull_studies
from flows.runs.display import TerminalDisplay
from flows.runs.run_progress import RunProgress
from flows.runs.scheduling import run_units
from flows.runs.threads import in_threads
from flows.selection import require_models, require_work, select_cells
from flows.servers import services, temporary_server
from flows.servers.daemons import Service, ask, wait_until
from flows.servers.guarded_worker import require_ours
from flows.servers.ports import free_port, require_free
from flows.settings import (
    BROWSER,
    browser,
    existing_folders,
    make_execution,
    named_folders,
    study_path,
)
from lce import running
from lce.commands.keeping import verify
from lce.keeping.cleaning import clean
from lce.keeping.verifying import verify_study
from lce.plugins.checking import check_plugins, require_assertions
from lce.plugins.scaffolding import new_plugin
from lce.rope.inspection import inspect_method
from lce.views.planning import inspect_study
from lce.views.status_view import watch
from lce_core.errors import NonFiniteError
from lce_core.execution import Execution
from lce_core.models import MODELS
from lce_core.store.artifacts import Store
from lce_core.store.lease import Lease
from lce_core.store.plugin_code import PluginChange
from lce_core.store.processes import started
from lce_core.store.verification import sampled
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.pricing.time_left import Predicted
from lce_core.study.progress import StepState, inspect
from lce_core.study.study_file import load_study
from lce_core.study.units import Unit
from tasks.board import BOARD
from tasks.verification import home_aside
from tasks.workers import close_pools
from tests.support.errors.provocations import Place, Table
from tests.support.free_steps import free_step

PROVOCATIONS = Table()
provokes = PROVOCATIONS


@provokes("flows/settings.py", "no such file")
def _(_: Place) -> None:
    study_path("none.yaml")


@provokes("flows/settings.py", "the name of a shipped study, or")
def _(_: Place) -> None:
    study_path("toyy")


@provokes("flows/settings.py", "an installed Chromium or Chrome")
def _(place: Place) -> None:
    place.patch.setenv(BROWSER, str(place.folder / "none"))
    browser()


@provokes("flows/settings.py", "no GPU is visible")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "")
    make_execution({"device": "cuda"})


@provokes("flows/settings.py", "visible GPUs")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "0")
    make_execution({"device": "cuda", "processes": 2})


@provokes("flows/settings.py", "each of these slots")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    make_execution({"device": "cuda", "processes": 2, "training_slots": 3})


@provokes("flows/settings.py", "write key: value")
def _(place: Place) -> None:
    (place.folder / "a.yaml").write_text("- 1", encoding="utf-8")
    make_execution({}, place.folder / "a.yaml")


@provokes("flows/settings.py", "a readable execution file")
def _(place: Place) -> None:
    (place.folder / "a.yaml").write_bytes(b"\xff")
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


@provokes("flows/selection.py", "none has all of them")
def _(place: Place) -> None:
    text = study_path("smoke").read_text(encoding="utf-8")
    file = place.folder / "mine.yaml"
    content = yaml.safe_load(text)
    content["benchmarks"][0] = {**content["benchmarks"][0], "methods": ["none"]}
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    plan = compile_study(load_study(file), {})
    others = [one for one in plan.cells if one.method != "none"]
    asked = content["benchmarks"][0]["name"]
    select_cells(plan, f"benchmark={asked},method={others[0].method}")


@provokes("flows/selection.py", "joined by commas")
def _(_: Place) -> None:
    select_cells(smoke(), "yarn")


@provokes("flows/plans/budget.py", "a number of hours above 0")
def _(_: Place) -> None:
    Budget.parse("8 gpus")


@provokes("flows/plans/budget.py", "too little for any block")
def _(place: Place) -> None:
    plan, execution = smoke(), Execution(home=place.folder)
    states = inspect(plan, Store(place.folder), {})
    within_budget(plan, states, execution, "0.000000001gpuh")


@provokes("flows/plans/plugin_changes.py", "a raised VERSION")
def _(_: Place) -> None:
    change = PluginChange(plugin="methods/mine", version=1, was="a", now="b", file="mine.py")
    state = StepState("to do", str(change), "stale", plugin_changes=frozenset({change}))
    require_same_plugins({"fingerprint": state})


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


@provokes("flows/servers/ports.py", "from 1 to 65535")
def _(_: Place) -> None:
    require_free(0, "--port")


@provokes("flows/servers/ports.py", "of the administrator's")
def _(place: Place) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    place.patch.setattr("socket.socket.bind", refuse)
    require_free(80, "--port")


@provokes("flows/servers/ports.py", "listens")
def _(_: Place) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        require_free(server.server_port, "--port")


@provokes("flows/runs/scheduling.py", "that nothing computes")
def _(place: Place) -> None:
    parent = free_step("rows", "toy", {}, {})
    child = free_step("base", "toy", {}, {"rows": parent})
    how = make_execution({"home": place.folder, "slots": 1, "device": "cpu"})
    unit = Unit("base toy", "base", (child,))
    try:
        predicted = {child.fingerprint: Predicted(1.0, ("base",))}
        progress = RunProgress([unit], predicted, 0, 1, BOARD)
        display = TerminalDisplay(progress, Console(quiet=True))
        seconds = {child.fingerprint: 1.0}
        run_units([unit], set(), how, display, in_threads(how, threading.Event()), seconds)
    finally:
        close_pools()


@provokes("flows/study.py", "failed unit", slow=True)
def _(place: Place) -> None:
    store = Store(place.folder)
    store.prepare()
    error = NonFiniteError("step 3", "loss nan", "a finite loss", "look")
    for step in smoke().steps.values():
        store.failures.add(step, error, {})
    place.patch.setattr(study, "record_study", study.record_study.fn)
    with disable_run_logger():
        study.controlled_study.fn("smoke", execution={"home": place.folder, "device": "cpu"})


@provokes("flows/pulling.py", "failed unit", slow=True)
def _(place: Place) -> None:
    store = Store(place.folder)
    store.prepare()
    error = NonFiniteError("step 3", "loss nan", "a finite loss", "look")
    for step in smoke().steps.values():
        store.failures.add(step, error, {})
    pull_studies(["smoke"], make_execution({"home": place.folder, "device": "cpu"}))


@provokes("flows/prefect_plugin.py", "clients with the method")
def _(place: Place) -> None:
    place.patch.setattr(prefect_plugin, "_METHOD", "moved_by_prefect")
    prefect_plugin.is_active()


def waits(place: Place, *, alive: bool) -> None:
    log = place.folder / "server.log"
    log.write_text("the last line", encoding="utf-8")
    wait_until("server", lambda: False, lambda: alive, log, 0.0)


@provokes("flows/servers/daemons.py", "ended while starting")
def _(place: Place) -> None:
    waits(place, alive=False)


@provokes("flows/servers/daemons.py", "no answer after")
def _(place: Place) -> None:
    waits(place, alive=True)


class _Refuses(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(401 if self.path.endswith("/health") else 500)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@provokes("flows/servers/daemons.py", "an answer of Prefect's server")
def _(_: Place) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), _Refuses) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        ask(f"http://127.0.0.1:{server.server_port}/api/work_pools/a")


def prefect_server() -> Any:
    fields = dict.fromkeys(Service.__dataclass_fields__)
    fields |= {"name": "server", "url": f"http://127.0.0.1:{free_port()}/api"}
    return Service(**fields)  # type: ignore[arg-type]


@provokes("flows/servers/services.py", "the checkout of this project")
def _(place: Place) -> None:
    place.patch.setattr(services, "_ROOT", place.folder)
    services._deploy(place.folder, prefect_server())


@provokes("flows/servers/services.py", "a deployment on this server", slow=True)
def _(place: Place) -> None:
    services._prefect(place.folder, prefect_server(), "no-such-command")


@provokes("flows/servers/services.py", "asks for the home's secret")
def _(_: Place) -> None:
    me = os.getpid()
    services._require_guarded(replace(prefect_server(), pid=me, started=started(me)))


@provokes("flows/servers/guarded_worker.py", "the only flow that this worker runs")
def _(_: Place) -> None:
    require_ours("a-run", None)


@provokes("lce/running.py", "a flow run that lasts as long as the study")
def _(place: Place) -> None:
    raise running._ended_in_prefect(temporary_server.TemporaryServer(place.folder), "deleted")


@provokes("lce/running.py", "a server that lets this run in")
def _(place: Place) -> None:
    raise running._refused(temporary_server.TemporaryServer(place.folder))


@provokes("lce/running.py", "a server that is told when the run begins")
def _(place: Place) -> None:
    server = temporary_server.TemporaryServer(place.folder)
    server.url = f"http://127.0.0.1:{free_port()}/api"
    raise running._never_told(server)


@provokes("flows/servers/temporary_server.py", "where no Prefect server answers")
def _(place: Place) -> None:
    place.patch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")
    temporary_server.TemporaryServer(place.folder).start()


@provokes("flows/servers/temporary_server.py", "a server that lets you in")
def _(place: Place) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), _Refuses) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        place.patch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server.server_port}/api")
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


@provokes("flows/servers/temporary_server.py", "that has been starting")
def _(place: Place) -> None:
    ready(place, taken=True)


@provokes("flows/servers/temporary_server.py", "a process that did not start", slow=True)
def _(place: Place) -> None:
    ready(place, taken=False)


# Flows: locks


def locked(place: Place, **changes: str) -> str:
    """The path of a smoke study whose lock was written before it was changed."""
    file = place.folder / "mine.yaml"
    text = study_path("smoke").read_text(encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    write_lock(str(file), here(place), None)
    for old, new in changes.items():
        text = text.replace(f"{old}: smoke", new)
    file.write_text(text, encoding="utf-8")
    return str(file)


def here(place: Place) -> Execution:
    return make_execution({"home": place.folder / "home", "device": "cpu"})


@provokes("flows/locking.py", "a place that can be written to")
def _(place: Place) -> None:
    write_lock("smoke", here(place), place.folder / "none" / "study.lock")


@provokes("flows/locking.py", "the study's lock")
def _(place: Place) -> None:
    check_lock("smoke", here(place), place.folder / "study.lock")


@provokes("flows/locking.py", "the lock of study")
def _(place: Place) -> None:
    check_lock(locked(place, study="study: other"), here(place), None)


@provokes("flows/locking.py", "data for every step that is locked")
def _(place: Place) -> None:
    (place.folder / "text").mkdir()
    (place.folder / "text" / "a.jsonl").write_text('{"text": "one two"}\n', encoding="utf-8")
    content = yaml.safe_load(study_path("smoke").read_text(encoding="utf-8"))
    content["corpus"] = {"name": "jsonl_folder", "folder": "text", "domain_names": ["code"]}
    file = place.folder / "mine.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    folders = {"data_folders": {"text": place.folder / "text"}}
    write_lock(str(file), make_execution({"home": place.folder, "device": "cpu", **folders}), None)
    write_lock(str(file), here(place), None)


@provokes("lce_core/study/lock.py", "a lock as `lce lock` writes it")
def _(place: Place) -> None:
    (place.folder / "study.lock").write_text("<<<<<<< HEAD\n", encoding="utf-8")
    write_lock("smoke", here(place), place.folder / "study.lock")


# Flows: cleaning


def cleaned(place: Place) -> None:
    clean(place.folder, dry_run=False, locks=[], prompt_gigabytes=1.0)


@provokes("lce/keeping/cleaning.py", "gigabytes, a number")
def _(place: Place) -> None:
    Store(place.folder).prepare()
    clean(place.folder, dry_run=True, locks=[], prompt_gigabytes=float("inf"))


@provokes("lce/views/status_view.py", "the data that the study is run with")
def _(place: Place) -> None:
    content = yaml.safe_load(study_path("smoke").read_text(encoding="utf-8"))
    content["corpus"] = {"name": "jsonl_folder", "folder": "text", "domain_names": ["code"]}
    file = place.folder / "mine.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    Store(place.folder / "home").prepare()
    watch(inspect_study(str(file), here(place)), Console(file=io.StringIO()))


@provokes("lce/keeping/cleaning.py", "the folder of a store")
def _(place: Place) -> None:
    cleaned(place)


@provokes("lce_core/study/reachable.py", "which artifacts are needed")
def _(place: Place) -> None:
    Store(place.folder).prepare()
    cleaned(place)


@provokes("lce_core/study/reachable.py", "a plan as a run writes it")
def _(place: Place) -> None:
    store = Store(place.folder)
    store.prepare()
    store.studies.save_plan("mine", {"cells": 3}, "mine.yaml")
    cleaned(place)


@provokes("lce_core/store/garbage.py", "that nobody computes in")
def _(place: Place) -> None:
    Store(place.folder).prepare()
    with cast(Lease, Lease.acquire(place.folder / "leases", "0123456789ab")):
        cleaned(place)


# Flows: verifying


@provokes("lce/keeping/verifying.py", "can be verified")
def _(place: Place) -> None:
    how = {"sample": "5%", "seed": 0, "select": "", "tolerance": 0.0}
    verify_study("smoke", here(place), **how)  # type: ignore[arg-type]


@provokes("lce/commands/keeping.py", "which reads the whole store")
def _(place: Place) -> None:
    names = ("slots", "device", "micro_batch_tokens", "execution")
    folders = ("model_folder", "data_folder", "plugins")
    verify(study="", files=False, **dict.fromkeys(names), **{name: [] for name in folders})  # type: ignore[call-arg]


@provokes("lce_core/store/verification.py", "a share such as 5%")
def _(_: Place) -> None:
    sampled(["ab"], str, "many", 0)


@provokes("tasks/verification.py", "one verification at a time")
def _(place: Place) -> None:
    store = Store(place.folder)
    store.prepare()
    with home_aside(store), home_aside(store):
        pass


# Flows: new plug-ins


@provokes("lce/plugins/scaffolding.py", "choose one of them")
def _(place: Place) -> None:
    new_plugin("corpus", "mine", place.folder)


@provokes("lce/plugins/scaffolding.py", "letters, digits and underscores")
def _(place: Place) -> None:
    new_plugin("method", "my-method", place.folder)


@provokes("lce/plugins/scaffolding.py", "a name that no {kind} has")
def _(place: Place) -> None:
    new_plugin("method", "yarn", place.folder)


@provokes("lce/plugins/scaffolding.py", "a file of that name")
def _(place: Place) -> None:
    new_plugin("method", "mine", place.folder)
    new_plugin("method", "mine", place.folder)


@provokes("lce_core/registry.py", "a name that no other has")
def _(place: Place) -> None:
    file = place.folder / "methods" / "yarn.py"
    file.parent.mkdir()
    file.touch()
    check_plugins(file, {})


@provokes("lce/plugins/checking.py", "no plug-in")
def _(place: Place) -> None:
    check_plugins(place.folder, {})


@provokes("lce/plugins/checking.py", "leaves out assertions")
def _(_: Place) -> None:
    require_assertions(1)


@provokes("lce/rope/inspection.py", "a head with frequencies of its own")
def _(_: Place) -> None:
    inspect_method("pi", [], "toy_llama", 512, None).head(0)


@provokes("lce/rope/inspection.py", "the form KEY=VALUE")
def _(_: Place) -> None:
    inspect_method("pi", ["scale"], "toy_llama", 512, None)


@provokes("lce/rope/inspection.py", "a value as in a study file")
def _(_: Place) -> None:
    inspect_method("pi", ["scale=["], "toy_llama", 512, None)
