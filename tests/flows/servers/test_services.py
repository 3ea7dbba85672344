"""Servers of a run, ports and background processes: what starts, what is refused, what is left."""

import json
import os
import socket
from collections.abc import Iterator

import psutil
import pytest

from flows.servers import doctor, services
from flows.servers.daemons import environment, find, launch, marked
from flows.servers.ports import require_free
from flows.servers.temporary_server import TemporaryServer, temporary_server
from lce_core.errors import ServiceError, SpecError
from tests.support.ports import unused_port
from tests.support.processes import MARK, new_marker, playing, survivors
from tests.support.studies import new_home, wait_until


@pytest.fixture(autouse=True)
def marker(monkeypatch) -> Iterator[str]:
    """The mark of all processes that the test starts; none outlives the test by much."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    marker = new_marker()
    monkeypatch.setenv(MARK, marker)
    yield marker
    wait_until(lambda: not survivors(marker))


def test_a_server_that_cannot_start_shows_its_log(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", str(tmp_path / "nowhere"))
    with temporary_server(tmp_path) as server, pytest.raises(ServiceError, match="Fatal Python"):
        server.wait_ready()


@pytest.mark.slow
def test_a_server_that_is_killed_while_it_starts_is_started_again(migrated, tmp_path, marker):
    with temporary_server(new_home(migrated, tmp_path / "home")) as server:
        wait_until(lambda: playing(marker, "server"))
        playing(marker, "server")[0].kill()
        assert server.wait_ready() == server.url
        assert server.answers()


def test_a_given_server_that_does_not_answer_is_named(tmp_path, monkeypatch):
    url = f"http://127.0.0.1:{unused_port()}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    with pytest.raises(ServiceError, match=f"PREFECT_API_URL: got {url}"):
        TemporaryServer(tmp_path).start()


def test_a_taken_port_is_refused_with_its_holder_and_nothing_starts(tmp_path, marker):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SpecError) as refused:
            services.up(tmp_path, {"server": unused_port(), "mlflow": port})
    message = str(refused.value)
    assert f"--mlflow-port: got {port}" in message
    assert f"PID {os.getpid()}" in message
    assert list((tmp_path / "services").glob("*.json")) == []
    assert survivors(marker) == []


def test_an_unused_port_is_free_and_a_number_out_of_range_is_no_port():
    require_free(unused_port(), "--port")
    for number in (0, 65536):
        with pytest.raises(SpecError, match="from 1 to 65535"):
            require_free(number, "--port")


def test_of_the_users_settings_those_that_restrict_reach_our_servers(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", "sqlite:////elsewhere.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "anybody:knows")
    monkeypatch.setenv("PREFECT_SERVER_CSRF_PROTECTION_ENABLED", "true")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy")
    settings = environment(tmp_path)
    url = f"sqlite+aiosqlite:///{tmp_path}/prefect/prefect.db"
    assert settings["PREFECT_SERVER_DATABASE_CONNECTION_URL"] == url
    assert "PREFECT_SERVER_API_AUTH_STRING" not in settings
    assert settings["PREFECT_SERVER_CSRF_PROTECTION_ENABLED"] == "true"
    assert "MLFLOW_TRACKING_URI" not in settings
    assert settings["HTTP_PROXY"] == "http://proxy"
    assert "127.0.0.1" in settings["NO_PROXY"]


def test_a_state_file_of_a_dead_process_or_a_reused_pid_is_no_service(tmp_path, marker):
    sleeper = launch(tmp_path, "sleeper", ["sleep", "600"], {})
    assert find(tmp_path, "sleeper") is not None
    state = tmp_path / "services" / "sleeper.json"
    content = json.loads(state.read_text())
    state.write_text(json.dumps({**content, "key of another version": False}))
    assert find(tmp_path, "sleeper") == sleeper
    for damage in ({"started": content["started"] - 60}, {"port": "4200"}):
        state.write_text(json.dumps({**content, **damage}))
        assert find(tmp_path, "sleeper") is None
    psutil.Process(sleeper.pid).kill()
    wait_until(lambda: not survivors(marker))
    state.write_text(json.dumps(content))
    assert find(tmp_path, "sleeper") is None


def test_down_finds_descendants_that_lost_their_parent(tmp_path, marker):
    launch(tmp_path, "worker", ["sh", "-c", "setsid sleep 600 &"], {})
    wait_until(lambda: not find(tmp_path, "worker"))
    wait_until(lambda: len(marked(tmp_path)) == 1)  # a process has no variables yet when it starts
    (orphan,) = marked(tmp_path)
    check = doctor.leftovers(tmp_path)
    assert not check.ok
    assert str(orphan.pid) in check.detail
    assert services.down(tmp_path) == []
    assert survivors(marker) == []
