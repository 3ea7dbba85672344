"""The servers of `lce up` and `lce dashboard` answer the user who started them, and nobody else.

Servers and intruders are real: another user's process, another origin's page, DNS rebinding.
"""

import contextlib
import http.server
import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.servers import services
from flows.servers.daemons import Service, answers, ask, status
from flows.servers.guarded_prefect import client_auth
from flows.servers.ports import require_free
from flows.servers.temporary_server import client_settings, temporary_server
from flows.settings import shipped_studies
from flows.study import controlled_study
from lce_core.access import SECRET_VARIABLE, authorization, login_link, server_secret
from lce_core.errors import ServiceError
from lce_core.store.artifacts import Store
from tasks.tracking import project
from tests.support.ports import listens, unused_port
from tests.support.processes import MARK, marked, new_marker, survivors
from tests.support.repository import ROOT
from tests.support.studies import environment, new_home, start, wait_until
from tests.support.tracked_studies import plan_study

# The servers of a home take a minute of CPU time to start, and every machine shall pass.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

START_SECONDS = 300.0
EXPERIMENTS = "/api/2.0/mlflow/experiments"
INTRUDER = """
import encodings.idna, json, os, sys, urllib.error, urllib.request
file, *asked = sys.argv[1:]
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
found = []
try:
    found.append(open(file).read())
except OSError as error:
    found.append(type(error).__name__)
for method, url, body in map(json.loads, asked):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    request.method = method
    try:
        found.append(urllib.request.urlopen(request).status)
    except urllib.error.HTTPError as error:
        found.append(error.code)
print(json.dumps(found))
"""
"""Becomes `nobody`; tries to read the secret's file, then sends the requests."""
PAGE = """<!doctype html><title>evil</title><script>
async function attack(requests, socket) {
  const tried = [];
  for (const [url, how] of requests) {
    try {
      const answer = await fetch(url, {credentials: "include", ...how});
      tried.push(answer.type === "opaque" ? "opaque" : await answer.text());
    } catch (error) { tried.push("refused"); }
  }
  tried.push(await new Promise(done => {
    const opened = new WebSocket(socket);
    opened.onopen = () => done("open");
    opened.onerror = () => done("refused");
  }));
  return tried;
}
</script>"""
EVENTS = """
import asyncio
from prefect.events import Event, Resource
from prefect.events.clients import get_events_client, get_events_subscriber
from prefect.settings import PREFECT_API_AUTH_STRING, temporary_settings

async def main():
    async with get_events_subscriber() as subscriber, get_events_client() as client:
        resource = Resource({"prefect.resource.id": "test"})
        await client.emit(Event(event="lce.test", resource=resource))
        async for event in subscriber:
            if event.event == "lce.test":
                return "heard"

print(asyncio.run(asyncio.wait_for(main(), 120)))
with temporary_settings({PREFECT_API_AUTH_STRING: "lce:wrong"}):
    try:
        print(asyncio.run(asyncio.wait_for(main(), 30)))
    except Exception:
        print("refused")
"""


@dataclass(frozen=True)
class Servers:
    home: Path
    prefect: Service
    mlflow: Service
    worker: Service
    dashboard: str
    link: str

    @property
    def secrets(self) -> dict[str, str]:
        return {
            self.root: server_secret(self.home, "prefect"),
            str(self.mlflow.url): server_secret(self.home, "mlflow"),
            self.dashboard: self.link.partition("#")[2],
        }

    @property
    def root(self) -> str:
        return str(self.prefect.url).removesuffix("/api")

    def ask(self, path: str, body: object = None) -> Any:
        """Return Prefect's answer, for which a busy database may need more than one try."""
        url, secret = f"{self.prefect.url}{path}", self.secrets[self.root]
        for _ in range(20):
            with contextlib.suppress(ServiceError):
                return ask(url, body, secret=secret)
            time.sleep(0.3)
        return ask(url, body, secret=secret)

    def flow_runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("/flow_runs/filter", {})
        return found

    def deployment(self, name: str) -> str:
        return str(self.ask(f"/deployments/name/controlled-study/{name}")["id"])

    def experiments(self) -> list[str]:
        url = f"{self.mlflow.url}{EXPERIMENTS}/search?max_results=50"
        found = ask(url, secret=self.secrets[str(self.mlflow.url)])
        return [one["name"] for one in found["experiments"]]

    def client(self, code: str, *arguments: str) -> list[str]:
        settings = client_settings(self.home, str(self.prefect.url), self.secrets[self.root])
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=environment(self.home, **settings),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def servers(migrated, sample) -> Iterator[Servers]:
    """Servers of a home that every user can enter; one study is in MLflow, one in the catalog."""
    home = new_home(migrated, Path(tempfile.mkdtemp(prefix="lce-home-")))
    home.chmod(0o755)
    store, marker = Store(home), new_marker()
    store.prepare()
    shutil.copy(sample / "catalog.duckdb", home)
    plan_study(store)
    project(store, "small")
    port, ports = unused_port(), {"server": unused_port(), "mlflow": unused_port()}
    options = ("--port", str(port), "--no-refresh")
    page = start(home, "dashboard", *options, env=marked(home, marker))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("PREFECT_API_URL", raising=False)
            patch.setenv(MARK, marker)
            started = services.up(home, ports)
        assert page.stdout is not None
        link = page.stdout.readline().split()[0]
        wait_until(lambda: listens(port), START_SECONDS)
        yield Servers(home, *started, f"http://127.0.0.1:{port}", link)
    finally:
        page.kill()
        page.communicate()
        stopped = services.down(home)
        shutil.rmtree(home)
    assert stopped == ["server", "mlflow", "worker"]
    assert survivors(marker) == []
    for name, taken in ports.items():
        require_free(taken, name)


def test_up_brings_servers_on_loopback_a_worker_and_all_deployments_and_only_once(servers):
    for service in (servers.prefect, servers.mlflow):
        root = psutil.Process(service.pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # one that had just ended
                sockets = process.net_connections("tcp")
                bound = {s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN}
                assert bound <= {"127.0.0.1"}, process.cmdline()
    deployments = {one["name"]: one for one in servers.ask("/deployments/filter", {})}
    assert set(deployments) == {"controlled-study", *shipped_studies()}
    schema = deployments["smoke"]["parameter_openapi_schema"]["properties"]
    assert set(schema) == set(inspect.signature(controlled_study.fn).parameters)
    again = services.up(servers.home, {})
    assert [one.pid for one in again] == [
        one.pid for one in (servers.prefect, servers.mlflow, servers.worker)
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_read_create_cancel_or_delete(servers):
    late = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2100-01-01T00:00:00Z"}}
    new_run = f"/deployments/{servers.deployment('smoke')}/create_flow_run"
    run = f"/flow_runs/{servers.ask(new_run, {'state': late})['id']}"
    before = servers.flow_runs()
    cancelling = {"state": {"type": "CANCELLING"}, "force": True}
    asked = [
        *(("POST", "/flow_runs/filter", {}), ("POST", new_run, {}), ("DELETE", run, None)),
        *(("POST", f"{run}/set_state", cancelling), ("GET", "/admin/settings", None)),
    ]
    asked = [(method, f"{servers.prefect.url}{path}", body) for method, path, body in asked]
    experiments = f"{servers.mlflow.url}{EXPERIMENTS}"
    asked += [
        ("GET", f"{experiments}/search?max_results=5", None),
        ("POST", f"{experiments}/create", {"name": "theirs"}),
        *(("GET", f"{url}/", None) for url in servers.secrets),
    ]
    done = subprocess.run(
        [sys.executable, "-I", "-c", INTRUDER, str(servers.home / "services" / "secret")]
        + [json.dumps(one) for one in asked],
        env={},
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout) == ["PermissionError", *[401] * len(asked)], done.stderr
    assert servers.flow_runs() == before
    assert "small" in servers.experiments()  # with the secret


def test_no_process_shows_a_secret_in_its_command_line(servers):
    assert min(map(len, servers.secrets.values())) > 40
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            assert not [secret for secret in servers.secrets.values() if secret in command]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1"])
def test_a_name_that_was_rebound_to_loopback_is_refused_even_with_the_secret(servers, host):
    for url, secret in servers.secrets.items():
        name = host.format(port=url.rpartition(":")[2])
        headers = {"Host": name, "Authorization": authorization(secret)}
        for path in ("/health", "/", "/api/admin/settings"):
            assert status(f"{url}{path}", headers) == 403


@pytest.fixture
def evil() -> Iterator[tuple[str, list[str]]]:
    """Serve a page of another origin; yield its address and the headers that it was sent."""
    seen: list[str] = []

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(str(self.headers))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{other.server_port}", seen
        other.shutdown()


@pytest.fixture
def page(chrome) -> Iterator[Any]:
    context = chrome.new_context()
    yield context.new_page()
    context.close()


def test_a_page_of_another_origin_neither_reads_nor_writes_though_its_browser_has_logged_in(
    servers, evil, page
):
    address, seen = evil
    page.goto(login_link(servers.root, servers.secrets[servers.root]))
    page.wait_for_url("**/dashboard*")
    secret = servers.secrets[str(servers.mlflow.url)]
    page.goto(login_link(str(servers.mlflow.url), secret, "/version"))
    page.wait_for_url(f"{servers.mlflow.url}/version")
    page.goto(servers.link)
    page.wait_for_url(f"{servers.dashboard}/")
    assert SECRET_VARIABLE not in page.content()
    before = servers.flow_runs()
    # The same site to a browser, which sends the cookies along: the hardest case.
    page.goto(address)
    new_run = f"{servers.prefect.url}/deployments/{servers.deployment('smoke')}/create_flow_run"
    experiments = f"{servers.mlflow.url}/ajax-api/2.0/mlflow/experiments"
    post = {"method": "POST", "body": "{}", "headers": {"Content-Type": "application/json"}}
    form = {"method": "POST", "mode": "no-cors", "headers": {"Content-Type": "text/plain"}}
    requests = [
        (new_run, post),
        (new_run, {**form, "body": "{}"}),
        (f"{servers.prefect.url}/flow_runs/filter", post),
        (f"{experiments}/search?max_results=5", {}),
        (f"{experiments}/create", {**form, "body": '{"name": "theirs"}'}),
        (f"{servers.dashboard}/", {}),
    ]
    socket = f"{servers.dashboard.replace('http', 'ws')}/_stcore/stream"
    tried = page.evaluate("asked => attack(...asked)", [requests, socket])
    # An opaque answer was sent, and the page may read nothing of it.
    refused = "refused"
    assert tried == [refused, "opaque", refused, refused, "opaque", refused, refused]
    assert servers.flow_runs() == before
    assert "theirs" not in servers.experiments()
    # Browsers give a cookie to every port of its host: it must not be a secret.
    assert seen
    assert not [secret for secret in servers.secrets.values() if secret in "".join(seen)]


def test_the_link_of_lce_up_shows_the_deployments_under_both_names_of_loopback(servers, page):
    for name in ("127.0.0.1", "localhost"):
        link = services.address(servers.home, servers.prefect).replace("127.0.0.1", name)
        page.goto(link)
        page.wait_for_url("**/dashboard*")
        # Prefect's page deletes its password if the check of it is cut off, and is blank then.
        page.get_by_role("link", name="Deployments").first.wait_for()
    page.goto(f"http://{name}:{servers.prefect.port}/deployments")
    # The page lists the first deployments by name only.
    page.get_by_text("base-sweep").first.wait_for()
    assert "login" not in page.url


def test_events_flow_over_websockets_with_the_secret_and_not_without(servers):
    assert servers.client(EVENTS) == ["heard", "refused"]


def test_a_given_server_is_used_with_the_users_own_credentials_and_not_stopped(
    servers, tmp_path, monkeypatch
):
    url, secret = str(servers.prefect.url), servers.secrets[servers.root]
    monkeypatch.setenv("PREFECT_API_URL", url)
    for name, value in client_auth(secret).items():
        monkeypatch.setenv(name, value)
    with temporary_server(tmp_path) as ours:
        assert ours.wait_ready() == url
        assert ours.answers()
        assert not ours.started_here
        assert "PREFECT_API_AUTH_STRING" not in client_settings(tmp_path, ours.url, ours.secret)
    assert answers(f"{url}/health", secret)


def test_the_secret_goes_to_no_other_address(servers, evil):
    # That server knows no secret, and the home's is asked for at its own address only.
    address, seen = evil
    settings = environment(servers.home, PREFECT_API_URL=f"{address}/api")
    code = "from prefect import get_client; get_client(sync_client=True).api_healthcheck()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=settings, check=True)
    assert seen  # it was asked, as the user wanted
    assert not answers(f"{address}/api/health", servers.secrets[servers.root])
    assert not [headers for headers in seen if "uthorization" in headers]


def test_a_command_in_the_job_variables_of_a_flow_run_is_ignored(servers, tmp_path):
    mark = tmp_path / "mark"
    asked = {"job_variables": {"command": f"touch {mark}"}, "parameters": {"study": "no-such"}}
    run = servers.ask(f"/deployments/{servers.deployment('smoke')}/create_flow_run", asked)["id"]
    state: dict[str, Any] = {}

    def has_ended() -> bool:
        state.update(servers.ask(f"/flow_runs/{run}")["state"])
        return state["type"] in ("COMPLETED", "FAILED", "CRASHED")

    wait_until(has_ended, START_SECONDS)
    # The flow ran, with what was asked of it: there is no such study.
    assert state["type"] == "FAILED"
    assert "study: got 'no-such'" in state["message"]
    assert not mark.exists()
