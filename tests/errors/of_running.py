"""Provocations of evaluation, training, catalog, tasks, flows and dashboards."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import torch
from filelock import FileLock
from prefect.logging import disable_run_logger

from catalog.extraction import _read_parquet
from catalog.formatting import format_rows
from catalog.holdings import take_stock
from catalog.queries import open_catalog, run_query
from dashboards.contents import read_contents
from dashboards.report import write_report
from flows import prefect_plugin, running, services, study, temporary_server
from flows.daemons import Service, ask, wait_until
from flows.display import TerminalDisplay
from flows.ports import free_port, require_free
from flows.scheduling import run_units
from flows.selection import require_work, select_cells
from flows.settings import (
    disk_full,
    existing_folders,
    make_execution,
    named_folders,
    study_path,
)
from lce_core.data.manifest import NAME
from lce_core.errors import NonFiniteError
from lce_core.evaluation.continuations import continuation_log_likelihoods
from lce_core.evaluation.decoding import generate
from lce_core.evaluation.likelihood import window_nll
from lce_core.evaluation.stats import bootstrap_mean, wilson
from lce_core.extension.extended_model import extend
from lce_core.methods import METHODS, LowRank
from lce_core.store.artifacts import Store
from lce_core.store.cell_tables import SAMPLES
from lce_core.store.steps import make_step
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.study_file import load_study
from lce_core.study.units import Unit
from lce_core.training import sharding
from lce_core.training.checkpoints.points import Point, find_point, publish, write_shard
from lce_core.training.launching import _raise_first_error, launch
from lce_core.training.low_rank import add_low_rank
from lce_core.training.run import run
from tasks.gpus import leased_gpus
from tasks.tracking import project
from tasks.units import compute
from tasks.workers import Pool, Slot, Worker, close_pools
from tests.support.cells import TOY
from tests.support.extended_models import BASES, stock
from tests.support.provocations import Place, Table
from tests.support.training_jobs import job_maker, packed_rows, silent

PROVOCATIONS = Table()
provokes = PROVOCATIONS
PROMPT = np.arange(8)


# Evaluation


def toy(*, broken: bool = False) -> Any:
    model = TOY.initialise(2).eval()
    if broken:
        model.get_output_embeddings().weight.data.fill_(torch.nan)
    return extend(model, TOY, METHODS.parse({"name": "none"}, "test"), target=512)


@provokes("lce_core/evaluation/continuations.py", "NaN or infinite logits")
def _(_: Place) -> None:
    continuation_log_likelihoods(toy(broken=True), [(PROMPT, PROMPT)], batch_tokens=64)


@provokes("lce_core/evaluation/continuations.py", "of context")
def _(_: Place) -> None:
    continuation_log_likelihoods(toy(), [(PROMPT[:0], PROMPT)], batch_tokens=64)


@provokes("lce_core/evaluation/decoding.py", "new tokens")
def _(_: Place) -> None:
    generate(toy(), [PROMPT], max_new_tokens=0, batch_tokens=64)


@provokes("lce_core/evaluation/decoding.py", "NaN or infinite logits")
def _(_: Place) -> None:
    generate(toy(broken=True), [PROMPT], max_new_tokens=2, batch_tokens=64)


@provokes("lce_core/evaluation/likelihood.py", "windows of")
def _(_: Place) -> None:
    window_nll(toy(), np.zeros((2, 1), np.uint32), batch_tokens=64)


@provokes("lce_core/evaluation/likelihood.py", "finite losses")
def _(_: Place) -> None:
    window_nll(toy(broken=True), np.zeros((2, 8), np.uint32), batch_tokens=64)


@provokes("lce_core/evaluation/stats.py", "all finite")
def _(_: Place) -> None:
    bootstrap_mean([])


@provokes("lce_core/evaluation/stats.py", "right of")
def _(_: Place) -> None:
    wilson(3, 2)


# Training


def train(place: Place, training: dict[str, Any] | None = None, **changes: Any) -> None:
    rows = place.folder / "rows"
    rows.mkdir()
    run(job_maker(packed_rows(rows), place.folder)(training, **changes), silent)


@provokes("lce_core/training/assembly.py", "at least one row")
def _(place: Place) -> None:
    train(place, {"tokens_per_step": 256}, row_length=32)


@provokes("lce_core/training/run.py", "a multiple of the row length")
def _(place: Place) -> None:
    train(place, {"tokens_per_step": 100})


@provokes("lce_core/training/run.py", "at most one process a GPU")
def _(place: Place) -> None:
    place.patch.setattr("lce_core.devices.count_accelerators", lambda: 1)
    place.patch.setattr(torch.cuda, "device_count", lambda: 1)
    train(place, processes=2, device="cuda")


@provokes("lce_core/training/trainer.py", "both finite")
def _(place: Place) -> None:
    train(place, {"learning_rate": 1e30, "warmup_steps": 0})


@provokes("lce_core/training/trainer.py", "finite weights")
def _(place: Place) -> None:
    train(place, {"learning_rate": 1e39, "warmup_steps": 0}, num_steps=1)


@provokes("lce_core/training/trainer.py", "no token with a loss weight")
def _(place: Place) -> None:
    rows = packed_rows(place.folder)
    manifest = json.loads((rows / NAME).read_text(encoding="utf-8"))
    (rows / NAME).write_text(json.dumps({**manifest, "weighted": True}), encoding="utf-8")
    shape = (manifest["num_rows"], manifest["row_length"])
    np.zeros(shape, np.uint8).tofile(rows / "weights.bin")
    run(job_maker(rows, place.folder)(), silent)


@provokes("lce_core/training/low_rank.py", "no linear layer")
def _(_: Place) -> None:
    add_low_rank(stock(BASES[0]), LowRank(2, 2, targets=("query_key_value",), whole=()), 0)


@provokes("lce_core/training/sharding.py", "gives other weights")
def _(place: Place) -> None:
    sent = iter([stock(BASES[0]).config.to_json_string(use_diff=False), "another layout"])
    place.patch.setattr(sharding.dist, "get_rank", lambda: 1)
    place.patch.setattr(sharding, "_broadcast_text", lambda *_: next(sent))
    sharding.build_on_main(lambda: stock(BASES[0]), torch.device("cpu"))


@provokes("lce_core/training/checkpoints/points.py", "a resume point of run")
def _(place: Place) -> None:
    point = Point(place.folder, 4, 1)
    write_shard(point, 0, 1, {"weights/a": torch.ones(1)})
    publish(point, "one", 1)
    find_point(place.folder, "another")


@provokes("lce_core/training/launching.py", "of accelerate launch", slow=True)
def _(place: Place) -> None:
    launch("tests.no_such_module", "{}", 1, silent, place.folder)


@provokes("lce_core/training/launching.py", "got {name}: {message}")
def _(place: Place) -> None:
    error = {"class": "KeyError", "message": "'a'", "trace": "...", "module": "m", "errno": None}
    found = json.dumps({**error, "parts": []})
    (place.folder / "error-1.json").write_text(found, encoding="utf-8")
    _raise_first_error(place.folder)


# Catalog


def database(place: Place) -> Path:
    file = place.folder / "catalog.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE VIEW studies AS SELECT 'toy' AS study")
    return file


@provokes("catalog/extraction.py", "a parquet table")
def _(place: Place) -> None:
    (place.folder / "a.parquet").write_bytes(b"none")
    _read_parquet(place.folder / "a.parquet", SAMPLES)


@provokes("catalog/formatting.py", "an output format")
def _(_: Place) -> None:
    format_rows(["a"], [(1,)], "xml")


@provokes("catalog/holdings.py", "among its files")
def _(place: Place) -> None:
    store, step = Store(place.folder), make_step("rows", "toy", {}, {})
    store.prepare()
    store.ensure(step, lambda attempt: {"n": (attempt.out / "a").write_bytes(b"a")}, {})
    take_stock(store).file(step.short, "samples.parquet")


@provokes("catalog/queries.py", "no such file")
def _(place: Place) -> None:
    open_catalog(place.folder / "none")


@provokes("catalog/queries.py", "got {error}; expected the catalog")
def _(place: Place) -> None:
    (place.folder / "none").write_bytes(b"no database" * 1000)
    open_catalog(place.folder / "none")


@provokes("catalog/queries.py", "a query that takes at most")
def _(place: Place) -> None:
    run_query(database(place), "SELECT sum(a.range) FROM range(100000) a, range(100000) b", 0.1)


@provokes("catalog/queries.py", "a query over the views")
def _(place: Place) -> None:
    run_query(database(place), "SELECT * FROM studdies")


@provokes("catalog/queries.py", "statements in")
def _(place: Place) -> None:
    run_query(database(place), "SELECT 1; SELECT 2")


@provokes("catalog/queries.py", "{sql} ({kind})")
def _(place: Place) -> None:
    run_query(database(place), "DROP VIEW studies")


@provokes("catalog/queries.py", "out of reach of a query")
def _(place: Place) -> None:
    run_query(database(place), "SELECT * FROM read_csv('/etc/hostname')")


# Dashboards


@provokes("dashboards/contents.py", "a study of")
def _(place: Place) -> None:
    read_contents(database(place), "toyy")


@provokes("dashboards/report.py", "a writable file", slow=True)
def _(place: Place) -> None:
    from catalog.build import build_catalog
    from tests.support.sample_store import STUDY, sample_store

    folder = place.folder / "out"
    folder.write_text("a file", encoding="utf-8")
    store = sample_store(place.folder)
    built = build_catalog(store, place.folder / "catalog.duckdb")
    write_report(built, STUDY, folder / "report.html")


# Tasks


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


@provokes("tasks/units.py", "failed steps", slow=True)
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
        found.run([make_step("rows", "toy", {}, {})], print)


@provokes("tasks/workers.py", "takes no requests", slow=True)
def _(place: Place) -> None:
    with worker(place) as found:
        kill(found)
        found.run([make_step("rows", "toy", {}, {})], print)


@provokes("tasks/workers.py", "no GPU is visible")
def _(place: Place) -> None:
    place.patch.setenv("CUDA_VISIBLE_DEVICES", "")
    Pool(execution(place).model_copy(update={"device": "cuda"}))


# Flows: requests


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


# Flows: running


@provokes("flows/scheduling.py", "that nothing computes")
def _(place: Place) -> None:
    parent = make_step("rows", "toy", {}, {})
    child = make_step("base", "toy", {}, {"rows": parent})
    try:
        from rich.console import Console

        display = TerminalDisplay(1, Console(quiet=True))
        run_units([Unit("base toy", "base", (child,))], set(), execution(place), display)
    finally:
        close_pools()


@provokes("flows/study.py", "failed units", slow=True)
def _(place: Place) -> None:
    store = Store(place.folder)
    store.prepare()
    error = NonFiniteError("step 3", "loss nan", "a finite loss", "look")
    for step in smoke().steps.values():
        store.note_failure(step, error, {})
    place.patch.setattr(study, "record_study", study.record_study.fn)
    with disable_run_logger():
        study.controlled_study.fn("smoke", execution={"home": place.folder, "device": "cpu"})


# Flows: servers


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
