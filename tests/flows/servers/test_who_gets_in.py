"""The server of `lce up`: whoever lacks the home's secret stays out, whoever has it is let in.

Strategy: one real home with server and worker for the file. Intruders are real too: a process of
another user, a page of another origin in Chromium, a request with the Host of DNS rebinding.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flows.servers import services
from flows.servers.daemons import Service, answers, ask
from flows.servers.temporary_server import client_settings
from lce_core.access import authorization, login_link, new_secret, server_secret
from lce_core.errors import ServiceError
from tests.support.ports import unused_port
from tests.support.repository import ROOT
from tests.support.studies import environment, new_home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

INTRUDER = """
import encodings.idna, json, os, sys, urllib.error, urllib.request
file, api, deployment, run = sys.argv[1:]
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
found = []
try:
    found.append(open(file).read())
except OSError as error:
    found.append(type(error).__name__)
def ask(method, path, body):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(api + path, data, {"Content-Type": "application/json"})
    request.method = method
    try:
        found.append(urllib.request.urlopen(request).status)
    except urllib.error.HTTPError as error:
        found.append(error.code)
state = {"state": {"type": "CANCELLING"}, "force": True}
ask("POST", "/flow_runs/filter", {})
ask("POST", f"/deployments/{deployment}/create_flow_run", {})
ask("POST", f"/flow_runs/{run}/set_state", state)
ask("DELETE", f"/flow_runs/{run}", None)
ask("GET", "/admin/settings", None)
print(json.dumps(found))
"""
"""Becomes `nobody`; tries to read the secret, and to read, create, cancel, delete flow runs."""
PAGE = """<!doctype html><title>evil</title><script>
async function attack(api, deployment) {
  const tried = [];
  const runs = `${api}/deployments/${deployment}/create_flow_run`;
  for (const [url, type, mode] of [
    [runs, "application/json", "cors"], [runs, "text/plain", "no-cors"],
    [`${api}/flow_runs/filter`, "application/json", "cors"],
  ]) {
    const asked = {method: "POST", mode, credentials: "include", body: "{}"};
    asked.headers = {"Content-Type": type};
    try { tried.push((await fetch(url, asked)).status); } catch (error) { tried.push("refused"); }
  }
  return tried;
}
</script>"""
EVENTS = """
import asyncio
from prefect.events import Event, Resource
from prefect.events.clients import get_events_client, get_events_subscriber

async def main():
    async with get_events_subscriber() as subscriber, get_events_client() as client:
        resource = Resource({"prefect.resource.id": "test"})
        await client.emit(Event(event="lce.test", resource=resource))
        async for event in subscriber:
            if event.event == "lce.test":
                return print("heard")

asyncio.run(asyncio.wait_for(main(), 30))
"""

FOREIGN = """
import sys, time
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.workers.process import ProcessWorker

mark, folder = sys.argv[1:]
command = {"command": f"touch {mark}", "env": {"LCE_HOME": "/elsewhere"}, "working_dir": "/tmp"}
shell = [{"prefect.deployments.steps.run_shell_script": {"script": f"touch {mark}"}}]
here = [{"prefect.deployments.steps.set_working_directory": {"directory": folder}}]

with get_client(sync_client=True) as client:
    # As it was before the pool's template was fixed, so that the server takes everything.
    template = ProcessWorker.get_default_base_job_template()
    client.update_work_pool("lce", WorkPoolUpdate(base_job_template=template))
    ours = client.read_deployment_by_name("controlled-study/smoke")
    runs = [client.create_flow_run_from_deployment(
        ours.id, job_variables=command, parameters={"study": "no-such-study"})]
    for name, entrypoint, steps in [
        ("steps", "flows/study.py:controlled_study", shell), ("path", "foreign.py:touch", here)]:
        deployment = client.create_deployment(ours.flow_id, name, entrypoint=entrypoint,
            path=folder, pull_steps=steps, work_pool_name="lce")
        runs.append(client.create_flow_run_from_deployment(deployment))
    for run in runs:
        while not (state := client.read_flow_run(run.id).state).is_final():
            time.sleep(0.2)
        print(state.type.value, state.message)
"""
"""Tries each way in which Prefect's own worker can be made to run something else."""


@pytest.fixture(scope="module")
def home(migrated: Path) -> Iterator[Path]:
    """A home that every user of the machine can enter; pytest's own folders are private."""
    folder = new_home(migrated, Path(tempfile.mkdtemp(prefix="lce-home-")))
    folder.chmod(0o755)
    yield folder
    services.down(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(home: Path) -> Service:
    return services.up(home, {"server": unused_port(), "mlflow": unused_port()})[0]


@pytest.fixture(scope="module")
def secret(home: Path) -> str:
    return server_secret(home, "prefect")


@pytest.fixture(scope="module")
def deployment(server: Service, secret: str) -> str:
    """The id of a deployment that would run for a while."""
    found = ask(f"{server.url}/deployments/name/controlled-study/smoke", secret=secret)
    return str(found["id"])


def flow_runs(server: Service, secret: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(f"{server.url}/flow_runs/filter", {}, secret=secret)
    return found


def posted(server: Service, secret: str, path: str, body: object) -> Any:
    """The answer to a POST, which a busy database may need more than once, as Prefect's clients."""
    for _ in range(20):
        with contextlib.suppress(ServiceError):
            return ask(f"{server.url}{path}", body, secret=secret)
        time.sleep(0.3)
    return ask(f"{server.url}{path}", body, secret=secret)


def postponed(server: Service, secret: str, deployment: str) -> str:
    """The id of a flow run that no worker takes yet."""
    state = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2100-01-01T00:00:00Z"}}
    path = f"/deployments/{deployment}/create_flow_run"
    return str(posted(server, secret, path, {"state": state})["id"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_read_create_cancel_or_delete(
    home: Path, server: Service, secret: str, deployment: str
) -> None:
    run = postponed(server, secret, deployment)
    file = home / "services" / "secret"
    before = flow_runs(server, secret)
    done = subprocess.run(
        [sys.executable, "-I", "-c", INTRUDER, str(file), str(server.url), deployment, run],
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout) == ["PermissionError", *[401] * 5], done.stderr
    assert flow_runs(server, secret) == before


def test_no_process_shows_the_secret_in_its_command_line(server: Service, secret: str) -> None:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        assert secret.encode() not in command


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1"])
def test_a_name_that_was_rebound_to_loopback_is_refused_even_with_the_secret(
    server: Service, secret: str, host: str
) -> None:
    name = host.format(port=server.port)
    headers = {"Host": name, "Authorization": authorization(secret)}
    for path in ("/health", "/admin/settings"):
        request = urllib.request.Request(f"{server.url}{path}", headers=headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        with refused.value as error:
            assert error.code == 403


class _Evil(http.server.BaseHTTPRequestHandler):
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(str(self.headers))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def evil() -> Iterator[str]:
    """Serve a page of another origin; yield its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Evil) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{other.server_port}"
        other.shutdown()


@pytest.fixture
def page() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser.new_page()
        browser.close()


@pytest.mark.browser
def test_a_page_of_another_origin_starts_and_reads_nothing_though_the_user_is_logged_in(
    server: Service, secret: str, deployment: str, evil: str, page: Any
) -> None:
    root = str(server.url).removesuffix("/api")
    page.goto(login_link(root, secret))
    page.wait_for_url("**/dashboard*")
    before = flow_runs(server, secret)
    page.goto(evil)
    tried = page.evaluate(f"attack({server.url!r}, {deployment!r})")
    assert tried == ["refused", 0, "refused"]  # 0: sent, and nothing may be read of the answer
    assert flow_runs(server, secret) == before
    # Browsers give a cookie to every port of its host: it must not be the secret.
    assert not [headers for headers in _Evil.seen if secret in headers]


@pytest.mark.browser
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_link_of_lce_up_shows_the_deployments(
    home: Path, server: Service, page: Any, name: str
) -> None:
    link = services.address(home, server).replace("127.0.0.1", name)
    page.goto(link)
    page.wait_for_url("**/dashboard*")
    # Prefect's page deletes its password if the check of it is cut off, and is blank until then.
    page.get_by_role("link", name="Deployments").first.wait_for(timeout=60_000)
    page.goto(f"http://{name}:{server.port}/deployments")
    # The page lists the first deployments by name only.
    page.get_by_text("base-sweep").first.wait_for(timeout=60_000)
    assert "login" not in page.url


@pytest.mark.browser
def test_without_the_link_a_browser_is_told_where_to_find_it(server: Service, page: Any) -> None:
    answer = page.goto(f"http://127.0.0.1:{server.port}/runs")
    assert answer.status == 401
    assert "lce up" in page.inner_text("body")


def client(
    home: Path, server: Service, secret: str, code: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    settings = environment(home, **client_settings(home, str(server.url), secret))
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=60)


def test_events_flow_over_websockets_with_the_secret_and_not_without(
    home: Path, server: Service, secret: str
) -> None:
    assert client(home, server, secret, EVENTS).stdout == "heard\n"
    assert client(home, server, new_secret(), EVENTS).returncode != 0


def test_prefect_commands_typed_in_the_checkout_just_work(home: Path, server: Service) -> None:
    settings = environment(home, PREFECT_API_URL=str(server.url))
    command = [sys.executable, "-m", "prefect", "flow-run", "ls"]
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert server_secret(home, "prefect") not in done.stdout + done.stderr


def test_the_secret_goes_to_no_other_address(home: Path, server: Service, evil: str) -> None:
    # That server knows no secret, and the home's is asked for at its own address only.
    _Evil.seen.clear()
    settings = environment(home, PREFECT_API_URL=f"{evil}/api")
    code = "from prefect import get_client; get_client(sync_client=True).api_healthcheck()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=settings, check=True)
    assert _Evil.seen  # it was asked, as the user wanted
    assert not answers(f"{evil}/api/health", server_secret(home, "prefect"))
    assert not [headers for headers in _Evil.seen if "uthorization" in headers]


def test_job_variables_are_refused_when_a_run_is_asked_for(
    server: Service, secret: str, deployment: str
) -> None:
    path = f"{server.url}/deployments/{deployment}/create_flow_run"
    with pytest.raises(ServiceError, match=r"HTTP 422.*command.*was unexpected"):
        ask(path, {"job_variables": {"command": "touch /tmp/mark"}}, secret=secret)


def test_the_worker_runs_our_flow_only_and_no_command(
    home: Path, server: Service, secret: str, tmp_path: Path
) -> None:
    # Last in the file: it opens the pool.
    mark = tmp_path / "mark"
    (tmp_path / "foreign.py").write_text(
        f"from prefect import flow\n@flow\ndef touch(): open({str(mark)!r}, 'w')", "utf-8"
    )
    done = client(home, server, secret, FOREIGN, str(mark), str(tmp_path))
    assert done.returncode == 0, done.stderr
    with_command, with_steps, with_entrypoint = done.stdout.splitlines()
    # The flow ran, with what was asked of it: there is no such study.
    assert with_command.startswith("FAILED")
    assert "no-such-study" in with_command
    for refused in (with_steps, with_entrypoint):
        assert refused.startswith("CRASHED")
        assert "the only flow that this worker runs" in refused
    assert not mark.exists()
