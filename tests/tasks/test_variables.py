"""Which environment variables reach the processes of a run, and what requests make of them.

Strategy: each hostile variable alone; tests/faults/test_interruptions.py has all of them at once.
"""

import http.server
import json
import os
import runpy
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import requests
from prefect.settings import (
    PREFECT_FLOWS_DEFAULT_RETRIES,
    PREFECT_TASKS_DEFAULT_RETRIES,
    PREFECT_TASKS_REFRESH_CACHE,
    temporary_settings,
)

from flows.servers import daemons, doctor
from flows.servers.guarded_prefect import prefect_database
from lce_core import environment
from lce_core.environment import for_child, passed
from lce_core.execution import Execution
from tasks import worker_process
from tasks.ray_engine import cluster
from tasks.run_progress import RunProgress
from tasks.slots import Slot
from tasks.sqlite_damage import sqlite_url
from tasks.unit_tasks import unit_task
from tasks.workers import Pool
from tests.support.hostile_variables import NEVER, PROXIES
from tests.support.repository import ROOT


def restrict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what every command does first, until the end of the test."""
    monkeypatch.setattr(environment, "removed", {})
    variables = dict(os.environ)
    environment.restrict(variables)
    for name in environment.removed:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", NEVER)
def test_what_changes_a_run_reaches_no_process(name, tmp_path, monkeypatch):
    before = os.environ.get(name)
    monkeypatch.setenv(name, NEVER[name])
    execution = Execution(home=tmp_path)
    built = (
        for_child(os.environ),
        worker_process._environment(Slot((0,)), execution, ()),
        daemons.environment(tmp_path),
        cluster.environment()["env_vars"],
    )
    database = sqlite_url(prefect_database(tmp_path), "sqlite+aiosqlite")
    ours = (before, str(tmp_path / "prefect"), database)
    assert all(variables.get(name) in (None, *ours) for variables in built)
    assert all(variables["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT) for variables in built)


def test_a_user_can_name_what_shall_pass_and_learns_what_does_not(monkeypatch):
    monkeypatch.setattr(environment, "removed", {})
    mine = {"MY_TOKEN": "t", "UCX_TLS": "tcp", "WORLD_SIZE": "2", "LS_COLORS": "x", "PATH": "/bin"}
    assert passed(mine) == {"PATH": "/bin"}
    named = {**mine, "LCE_PASS": "UCX_*, MY_TOKEN"}
    assert set(passed(named)) == {"LCE_PASS", "MY_TOKEN", "PATH", "UCX_TLS"}
    assert environment.ignored(named) == ["WORLD_SIZE"]
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    check = doctor._environment()
    assert check.ok
    assert "WORLD_SIZE" in check.detail
    assert "LS_COLORS" not in check.detail
    restrict(monkeypatch)
    assert "WORLD_SIZE" not in os.environ
    assert doctor._environment() == check


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server of this machine."""
    handler = http.server.SimpleHTTPRequestHandler
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


EMPTY_FILE = "an empty file"


@pytest.mark.parametrize(
    "theirs",
    [
        PROXIES,
        {"http_proxy": "http://127.0.0.1:9", "no_proxy": "example.org"},
        {
            "HTTP_PROXY": "127.0.0.1:9",
            "NO_PROXY": "10.0.0.0/8,fd00::/8,[::1],<local>,*.example.org",
        },
        {"ALL_PROXY": "socks5://127.0.0.1:9"},
        {"all_proxy": "http://127.0.0.1:9"},
        {"HTTPS_PROXY": "http://[::1", "HTTP_PROXY": "http://a:b", "ALL_PROXY": "http://a b"},
        {"SSL_CERT_FILE": EMPTY_FILE, "SSLKEYLOGFILE": "/nonexistent/keys"},
    ],
    ids=lambda theirs: ",".join(theirs),
)
def test_clients_of_servers_on_this_machine_need_neither_proxies_nor_certificates(
    theirs, address, tmp_path, monkeypatch
):
    (tmp_path / "empty").touch()
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in theirs.items():
        monkeypatch.setenv(name, str(tmp_path / "empty") if value == EMPTY_FILE else value)
    restrict(monkeypatch)
    assert httpx.get(address, timeout=60).status_code == 200
    assert requests.get(address, timeout=60).status_code == 200
    with urllib.request.build_opener().open(address, timeout=60) as response:
        assert response.status == 200


def test_other_hosts_are_reached_as_the_user_says():
    given = {"HTTP_PROXY": "http://me:word@proxy:3128", "NO_PROXY": ".example.org,10.0.0.0/8,[::1]"}
    direct = ".example.org,10.0.0.0/8,::1,127.0.0.1,localhost"
    assert passed(given) == {**given, "NO_PROXY": direct, "no_proxy": direct}
    assert passed({**given, "no_proxy": "*"})["no_proxy"] == "*"
    authorities = requests.certs.where()
    assert passed({"SSL_CERT_FILE": authorities}) == {"SSL_CERT_FILE": authorities}


def test_prefects_defaults_change_no_flow_and_no_task(tmp_path):
    changed = {
        PREFECT_FLOWS_DEFAULT_RETRIES: 1,
        PREFECT_TASKS_DEFAULT_RETRIES: 3,
        PREFECT_TASKS_REFRESH_CACHE: True,
    }
    with temporary_settings(changed):
        flow = runpy.run_path(str(ROOT / "flows/study.py"))["controlled_study"]
        record = runpy.run_path(str(ROOT / "tasks/unit_tasks.py"))["record_study"]
        execution = Execution(home=tmp_path, max_attempts=1)
        unit = unit_task("unit", Pool(execution), RunProgress((), {}, (), (), 1))
    assert [one.retries for one in (flow, record, unit)] == [0, 0, 0]
    assert [one.persist_result for one in (flow, record, unit)] == [False, False, False]
    assert [one.log_prints for one in (flow, record, unit)] == [False, False, False]
    assert [one.refresh_cache for one in (record, unit)] == [False, False]


SWITCHES = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "LD_PRELOAD": "libm.so.6",
    "MKL_CBWR": "AVX2",
    "NCCL_ALGO": "Ring",
    "NVIDIA_TF32_OVERRIDE": "0",
}
ASK = "import json; from lce_core.store.records import environment as e; print(json.dumps(e()))"


def test_records_name_the_commit_and_the_switches_whatever_git_is_told(tmp_path: Path) -> None:
    def record(**more: str) -> dict[str, object]:
        plain = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", ASK]
        found = subprocess.check_output(command, env=plain | more, cwd=tmp_path, text=True)
        return dict(json.loads(found))

    plain = record()
    assert "switches" not in plain
    assert record(**SWITCHES, GIT_DIR="/nonexistent") == {**plain, "switches": SWITCHES}
