"""MLflow's UI and the dashboard answer the user who started them, and nobody else.

Strategy: both servers run as `lce up` and `lce dashboard` run them. Another user, a page of another
origin in Chromium and a request under a foreign name try to read and to write; then their owner.
"""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from catalog.build import build_catalog
from flows.servers import daemons, services
from flows.servers.daemons import answers
from lce_core.access import SECRET_VARIABLE, login_link, server_secret
from lce_core.store.artifacts import Store
from tasks.tracking import project
from tests.support.catalogs.sample_store import STUDY, sample_store
from tests.support.ports import listens, unused_port
from tests.support.processes import marked, new_marker
from tests.support.studies import start, wait_until
from tests.support.tracked_studies import plan_study

pytestmark = pytest.mark.slow

SEARCH = "/api/2.0/mlflow/experiments/search"
CREATE = "/api/2.0/mlflow/experiments/create"
START_SECONDS = 90.0
NOBODY = 65534
ASK_AS_NOBODY = """
import sys, urllib.error, urllib.request
def status(url, body):
    ask = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        return urllib.request.urlopen(ask, timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code
print([status(url, b'{"name": "theirs"}' if url.endswith("create") else None)
       for url in sys.argv[1:]])
"""
HOSTILE = """<script>
window.answers = {};
async function attack(name, url, how) {
  try {
    const answer = await fetch(url, how);
    window.answers[name] = answer.type === "opaque" ? "opaque" : await answer.text();
  } catch (error) { window.answers[name] = "refused"; }
}
function connect(url) {
  return new Promise(done => {
    const socket = new WebSocket(url);
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
  });
}
(async () => {
  const form = {method: "POST", mode: "no-cors", credentials: "include",
                headers: {"Content-Type": "text/plain"}, body: '{"name": "theirs"}'};
  await attack("read", "MLFLOW/ajax-api/2.0/mlflow/experiments/search?max_results=5",
               {credentials: "include"});
  await attack("write", "MLFLOW/ajax-api/2.0/mlflow/experiments/create", form);
  await attack("page", "DASHBOARD/", {credentials: "include"});
  window.answers.socket = await connect("DASHBOARD/_stcore/stream".replace("http", "ws"));
  window.done = true;
})();
</script>"""


@dataclass(frozen=True)
class Servers:
    """The two servers of one home, and what logs in at each."""

    mlflow: str
    dashboard: str
    mlflow_secret: str
    dashboard_link: str
    mlflow_pid: int
    dashboard_pid: int


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A home with one study in MLflow and one in the catalog, served."""
    home, marker, port = tmp_path_factory.mktemp("home"), new_marker(), unused_port()
    store = Store(home)
    store.prepare()
    build_catalog(sample_store(tmp_path_factory.getbasetemp()), home / "catalog.duckdb")
    plan_study(store)
    project(store, "small")
    options = ("--port", str(port), "--no-refresh")
    page = start(home, "dashboard", *options, env=marked(home, marker))
    mlflow = services._start_mlflow(home, unused_port())
    try:
        wait_until(lambda: answers(f"{mlflow.url}/health"), START_SECONDS)
        assert page.stdout is not None
        link = page.stdout.readline().split()[0]
        wait_until(lambda: listens(port), START_SECONDS)
        yield Servers(
            str(mlflow.url),
            f"http://127.0.0.1:{port}",
            server_secret(home, "mlflow"),
            link,
            mlflow.pid,
            page.pid,
        )
    finally:
        daemons.stop(home, [mlflow])
        page.kill()
        page.communicate()


def status(url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> int:
    request = urllib.request.Request(url, body, dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def bearer(servers: Servers) -> dict[str, str]:
    return {"Authorization": f"Bearer {servers.mlflow_secret}", "Content-Type": "application/json"}


def experiments(servers: Servers) -> list[str]:
    """Names of MLflow's experiments, as a client with the secret reads them."""
    code = "import mlflow; print(*(e.name for e in mlflow.MlflowClient().search_experiments()))"
    settings = {
        "MLFLOW_TRACKING_URI": servers.mlflow,
        "MLFLOW_TRACKING_USERNAME": "lce",
        "MLFLOW_TRACKING_PASSWORD": servers.mlflow_secret,
    }
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.split()


def test_a_client_with_the_secret_reads_the_study(servers: Servers) -> None:
    assert "small" in experiments(servers)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_neither_reads_nor_writes(servers: Servers) -> None:
    found = f"{servers.mlflow}{SEARCH}?max_results=5"
    urls = [found, f"{servers.mlflow}{CREATE}", f"{servers.mlflow}/", f"{servers.dashboard}/"]
    # The program of this virtual environment may lie where another user cannot go.
    answer = subprocess.run(
        ["/usr/bin/env", "python3", "-c", ASK_AS_NOBODY, *urls],
        cwd="/",
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert answer.stdout.strip() == "[401, 401, 401, 401]", answer.stderr
    assert status(found, bearer(servers)) == 200


@pytest.mark.parametrize("server", ["mlflow", "dashboard"])
def test_a_foreign_name_of_the_server_is_refused_even_with_the_secret(
    servers: Servers, server: str
) -> None:
    url = getattr(servers, server)
    foreign = {**bearer(servers), "Host": "evil.example"}
    assert status(f"{url}/health", foreign) == 403
    assert status(f"{url}/", foreign) == 403


def test_the_secrets_stand_in_no_command_line_and_no_log(servers: Servers, tmp_path: Path) -> None:
    secret = servers.dashboard_link.partition("#")[2]
    assert len(secret) > 40
    for pid in (servers.mlflow_pid, servers.dashboard_pid):
        line = " ".join(psutil.Process(pid).cmdline())
        assert secret not in line
        assert servers.mlflow_secret not in line


@pytest.mark.browser
def test_a_page_of_another_origin_neither_reads_nor_writes_though_its_browser_has_logged_in(
    servers: Servers, chrome: Any, tmp_path: Path
) -> None:
    hostile = HOSTILE.replace("MLFLOW", servers.mlflow).replace("DASHBOARD", servers.dashboard)
    (tmp_path / "index.html").write_text(hostile, encoding="utf-8")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        context = chrome.new_context()
        page = context.new_page()
        logged_in(page, servers)
        # The same site to a browser, which sends the cookies along: the hardest case.
        page.goto(f"http://127.0.0.1:{elsewhere.server_address[1]}/")
        page.wait_for_function("window.done")
        found = page.evaluate("window.answers")
        context.close()
        elsewhere.shutdown()
    refused = {"read": "refused", "page": "refused", "socket": "refused"}
    assert {name: found[name] for name in refused} == refused
    assert "theirs" not in experiments(servers)


@pytest.mark.browser
def test_with_the_links_that_log_in_both_pages_work_and_ask_nobody_else(
    servers: Servers, chrome: Any
) -> None:
    context = chrome.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    logged_in(page, servers)
    page.get_by_role("heading", name=f"Findings: {STUDY}").wait_for()
    page.get_by_test_id("stSidebarNav").get_by_text("Matrix", exact=True).click()
    page.get_by_test_id("stVegaLiteChart").locator("svg.marks").first.wait_for()
    page.goto(f"{servers.mlflow}/#/experiments?workflowType=machine_learning")
    page.get_by_role("link", name="small", exact=True).first.wait_for()
    context.close()
    own = [server.removeprefix("http") for server in (servers.mlflow, servers.dashboard)]
    outside = [
        url for url in asked if not url.removeprefix("http").removeprefix("ws").startswith((*own,))
    ]
    assert [url for url in outside if not url.startswith(("data:", "blob:"))] == []
    assert any(url.startswith("ws:") for url in asked)


@pytest.mark.browser
def test_without_logging_in_a_browser_is_told_how(servers: Servers, chrome: Any) -> None:
    page = chrome.new_context().new_page()
    for url in (servers.mlflow, servers.dashboard):
        page.goto(url)
        page.get_by_text("Open the link that").wait_for()
    page.context.close()


def logged_in(page: Any, servers: Servers) -> None:
    """Open the links that `lce up` and `lce dashboard` print."""
    page.set_default_timeout(START_SECONDS * 1000)
    page.goto(login_link(servers.mlflow, servers.mlflow_secret, "/version"))
    page.wait_for_url(f"{servers.mlflow}/version")
    page.goto(servers.dashboard_link)
    page.wait_for_url(f"{servers.dashboard}/")
    assert answers(f"{servers.mlflow}/health")
    assert SECRET_VARIABLE not in page.content()
