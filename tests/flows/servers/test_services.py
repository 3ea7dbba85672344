"""Servers on loopback: real Prefect servers, a real worker and the real MLflow UI.

Strategy: everything runs in processes of its own with its home in a temporary folder; what must be
gone is looked for by the mark its processes carry, not by what we were told.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flows.servers import services
from flows.servers.daemons import Service, answers, ask, environment, find, launch, marked, tail
from flows.servers.doctor import leftovers
from flows.servers.ports import holder, require_free
from flows.servers.temporary_server import TemporaryServer, client_settings, temporary_server
from flows.settings import shipped_studies
from flows.study import controlled_study
from lce_core.access import server_secret
from lce_core.errors import ServiceError, SpecError
from tests.support.ports import unused_port
from tests.support.repository import ROOT
from tests.support.studies import new_home, wait_until

FLOW = """
from prefect import flow, task

@task
def double(n): return 2 * n

@flow(name="doubling")
def doubling(): return [double(n) for n in range(20)]

doubling()
"""


@pytest.fixture(scope="module")
def home(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = new_home(migrated, tmp_path_factory.mktemp("home"))
    yield folder
    services.down(folder)
    assert below(folder) == []


@pytest.fixture(autouse=True)
def _no_server_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def below(home: Path) -> list[psutil.Process]:
    """Return the running processes that work for this home."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            ours = process.environ().get("PREFECT_HOME") == str(home / "prefect")
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def require_gone(home: Path) -> None:
    wait_until(lambda: not below(home), 15)


@pytest.mark.slow
@pytest.mark.long
def test_two_runs_that_meet_a_new_database_both_get_a_server(tmp_path: Path) -> None:
    with temporary_server(tmp_path) as one, temporary_server(tmp_path) as two:
        assert one.wait_ready() != two.wait_ready()
        assert one.answers()
        assert two.answers()
        assert one.secret != two.secret
    require_gone(tmp_path)


@pytest.mark.slow
@pytest.mark.long
def test_a_temporary_server_keeps_the_record_of_every_task_and_leaves_nothing(home: Path) -> None:
    with temporary_server(home) as server:
        settings = client_settings(home, server.wait_ready(), server.secret)
        command = [sys.executable, "-c", FLOW]
        done = subprocess.run(
            command, env={**os.environ, **settings}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    require_gone(home)
    with temporary_server(home) as server:  # another process, the same database
        url = server.wait_ready()
        assert len(ask(f"{url}/task_runs/filter", {"limit": 200}, secret=server.secret)) == 20
        (run,) = ask(f"{url}/flow_runs/filter", {}, secret=server.secret)
        assert run["state_type"] == "COMPLETED"
    require_gone(home)


@pytest.mark.slow
def test_starting_returns_at_once_and_loads_no_prefect(home: Path) -> None:
    # At once: before the server, which takes seconds on any machine, can have answered.
    code = (
        "import sys, pathlib\n"
        "from flows.servers.temporary_server import temporary_server\n"
        "with temporary_server(pathlib.Path(sys.argv[1])) as server:\n"
        "    print(server.url, server.answers(), 'prefect' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(home)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    url, *found = done.stdout.split()
    assert url.startswith("http://127.0.0.1:"), done.stderr
    assert found == ["False", "False"]
    require_gone(home)


@pytest.mark.long
@pytest.mark.slow
def test_a_temporary_server_dies_with_a_killed_run(home: Path) -> None:
    code = (
        "import sys, pathlib, time; from flows.servers.temporary_server import TemporaryServer\n"
        "server = TemporaryServer(pathlib.Path(sys.argv[1])); server.start()\n"
        "print(server.wait_ready(), server.secret, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(home)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        url, secret = run.stdout.readline().split()
        assert answers(f"{url}/health", secret)
        assert len(below(home)) >= 3  # supervisor, guard and server
        run.send_signal(signal.SIGKILL)
    require_gone(home)
    assert not answers(f"{url}/health", secret)


@pytest.mark.long
@pytest.mark.slow
def test_a_server_dies_with_its_killed_supervisor_and_another_takes_its_place(home: Path) -> None:
    told: list[str] = []
    with temporary_server(home, told.append) as server:
        server.wait_ready()
        first = {process.pid for process in below(home)}
        assert server._process is not None
        server._process.kill()
        wait_until(lambda: not first & {process.pid for process in below(home)}, 60)
        wait_until(server.answers, 60)
        assert told == ["Prefect's server died and is being restarted."]
    require_gone(home)
    assert not server.answers()


@pytest.mark.slow
def test_a_server_that_does_not_start_again_is_given_up_with_a_word(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    with temporary_server(home, told.append) as server:
        server.wait_ready()
        assert server._process is not None
        monkeypatch.setenv("PYTHONHOME", str(home / "nowhere"))  # no Python starts with that
        server._process.kill()
        wait_until(lambda: len(told) > 1, 60)
    assert told[0] == "Prefect's server died and is being restarted."
    assert told[1].startswith(
        "Prefect's server could not be restarted; the run continues without it."
    )
    assert len(told) == 2
    assert "Fatal Python error" in server.log.read_text(errors="replace")
    require_gone(home)


@pytest.fixture
def theirs(migrated: Path, tmp_path: Path) -> Iterator[str]:
    """A server of the user's own: Prefect's, with an address and nothing else from us."""
    port = unused_port()
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
    home = new_home(migrated, tmp_path / "theirs") / "prefect"
    settings = {**os.environ, "PREFECT_HOME": str(home), "PREFECT_SERVER_UI_ENABLED": "false"}
    with subprocess.Popen(command, env=settings, stdout=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}/api"
        wait_until(lambda: answers(f"{url}/health"), 60)
        yield url
        process.terminate()


@pytest.mark.slow
def test_a_given_server_is_used_with_the_users_own_credentials_and_not_stopped(
    home: Path, theirs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", theirs)
    with temporary_server(home) as ours:
        assert ours.wait_ready() == theirs
        assert not ours.started_here
        assert "PREFECT_API_AUTH_STRING" not in client_settings(home, ours.url, ours.secret)
    assert answers(f"{theirs}/health")


def test_a_given_server_that_does_not_answer_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{unused_port()}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    with pytest.raises(ServiceError, match=f"PREFECT_API_URL: got {url}"):
        TemporaryServer(home).start()


@pytest.mark.slow
def test_a_server_that_cannot_start_shows_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect" / "profiles.toml").write_text("no = [profiles")
    with temporary_server(tmp_path) as server, pytest.raises(ServiceError, match="TOMLDecodeError"):
        server.wait_ready()
    require_gone(tmp_path)


def test_a_taken_port_is_refused_with_its_holder_and_nothing_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SpecError) as refused:
            services.up(tmp_path, {"server": unused_port(), "mlflow": port})
    message = str(refused.value)
    assert f"--mlflow-port: got {port}" in message
    assert f"PID {os.getpid()}" in message
    assert "lce down" in message
    assert list((tmp_path / "services").glob("*.json")) == []
    assert below(tmp_path) == []


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(SpecError, match="from 1 to 65535"):
        require_free(port, "--port")


def test_nobody_holds_an_unused_port() -> None:
    port = unused_port()
    require_free(port, "--port")
    assert "another user" in holder(port)


def test_of_the_users_settings_those_that_restrict_reach_our_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", "sqlite:////elsewhere.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "anybody:knows")
    monkeypatch.setenv("PREFECT_SERVER_CSRF_PROTECTION_ENABLED", "true")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy")
    settings = environment(tmp_path)
    assert "PREFECT_SERVER_DATABASE_CONNECTION_URL" not in settings
    assert "PREFECT_SERVER_API_AUTH_STRING" not in settings
    assert settings["PREFECT_SERVER_CSRF_PROTECTION_ENABLED"] == "true"
    assert "MLFLOW_TRACKING_URI" not in settings
    assert settings["HTTP_PROXY"] == "http://proxy"
    assert "127.0.0.1" in settings["NO_PROXY"]


def test_a_state_file_of_a_dead_process_or_a_reused_pid_is_no_service(tmp_path: Path) -> None:
    sleeper = launch(tmp_path, "sleeper", [sys.executable, "-c", "import time; time.sleep(99)"], {})
    assert find(tmp_path, "sleeper") is not None
    state = tmp_path / "services" / "sleeper.json"
    content = json.loads(state.read_text())
    state.write_text(json.dumps({**content, "started": content["started"] - 60}))
    assert find(tmp_path, "sleeper") is None
    psutil.Process(sleeper.pid).kill()
    require_gone(tmp_path)
    state.write_text(json.dumps(content))
    assert find(tmp_path, "sleeper") is None


@pytest.mark.slow
def test_down_finds_descendants_that_lost_their_parent(tmp_path: Path) -> None:
    spawn = (
        "import subprocess, sys;"
        " subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'],"
        " start_new_session=True)"
    )
    launch(tmp_path, "worker", [sys.executable, "-c", spawn], {})
    wait_until(lambda: not find(tmp_path, "worker"), 60)
    (orphan,) = marked(tmp_path)
    check = leftovers(tmp_path)
    assert not check.ok
    assert str(orphan.pid) in check.detail
    assert services.down(tmp_path) == []
    assert below(tmp_path) == []


@pytest.mark.slow
def test_up_brings_server_worker_deployments_and_mlflow_and_down_leaves_nothing(
    home: Path,
) -> None:
    ports = {"server": unused_port(), "mlflow": unused_port()}
    server, mlflow, worker = services.up(home, ports)
    secret = server_secret(home, "prefect")
    assert answers(f"{server.url}/health", secret), tail(Path(server.log))
    assert answers(f"{mlflow.url}/health")
    for service in (server, mlflow):
        root = psutil.Process(service.pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # one that had just ended
                sockets = process.net_connections("tcp")
                bound = {s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN}
                assert bound <= {"127.0.0.1"}, process.cmdline()
    assert len(marked(home)) <= 6
    deployments = ask(f"{server.url}/deployments/filter", {}, secret=secret)
    names = {deployment["name"]: deployment for deployment in deployments}
    assert set(names) == {"controlled-study", *shipped_studies()}
    assert names["controlled-study"]["parameters"] == {"study": "toy"}
    schema = names["smoke"]["parameter_openapi_schema"]["properties"]
    assert set(schema) == set(inspect.signature(controlled_study.fn).parameters)
    assert schema["study"]["description"].startswith("name of a shipped study")
    assert "installation" in names["smoke"]["description"]
    again = services.up(home, ports)
    assert [service.pid for service in again] == [server.pid, mlflow.pid, worker.pid]
    assert all(service.already for service in again)
    checks = {check.name: check for check in services.doctor(home)}
    assert checks["services"].ok
    assert checks["orphan processes"].ok
    assert services.down(home) == ["server", "mlflow", "worker"]
    assert below(home) == []
    require_free(ports["server"], "--port")
    require_free(ports["mlflow"], "--mlflow-port")


@pytest.mark.parametrize(
    ("folder", "port", "settings"),
    [
        (ROOT, 4200, ""),
        (ROOT, 4271, "PREFECT_API_URL=http://127.0.0.1:4271/api "),
        (
            Path("/"),
            4200,
            "PREFECT_PLUGINS_ENABLED=true PREFECT_API_URL=http://127.0.0.1:4200/api ",
        ),
    ],
)
def test_the_printed_command_has_the_settings_that_its_folder_lacks(
    folder: Path, port: int, settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    server = Service("server", 1, 0.0, port, f"http://127.0.0.1:{port}/api", "log")
    printed = services.deployment_command(server)
    assert printed == f"{settings}prefect deployment run controlled-study"
