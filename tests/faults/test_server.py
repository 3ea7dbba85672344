"""A run whose Prefect server dies: nothing is lost, and the user reads a sentence, not a dump.

Strategy: real runs in new homes; the server that a run started is killed while cells are computed.
"""

import contextlib
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flows.servers.daemons import answers
from flows.servers.prefect_database import prefect_database
from flows.servers.temporary_server import client_settings
from lce_core.store.artifacts import Store
from tests.faults.output import require_no_dump
from tests.support.ports import unused_port
from tests.support.processes import marked, new_marker, playing, survivors
from tests.support.studies import (
    HANG_SECONDS,
    TINY_STEPS,
    computed,
    environment,
    new_home,
    scores,
    start,
    wait_until,
    write_study,
)

pytestmark = pytest.mark.slow

Arguments = tuple[str, ...]
DIED = "Prefect's server died and is being restarted."
GIVEN_UP = "Prefect's server could not be restarted; the run continues without it."

FINISH_NOT_RECORDED = "died: its UI does not show that the run ended."


def server_at_work(marker: str, home: Path) -> psutil.Process:
    """The server of a run that has computed something and has more to do."""
    wait_until(lambda: list((home / "artifacts").glob("rows/jsonl*")))
    (server,) = playing(marker, "server")
    return server


def flow_runs(home: Path) -> list[str]:
    """Return the state of every flow run that Prefect's database holds."""
    with contextlib.closing(sqlite3.connect(prefect_database(home))) as database:
        return [state for (state,) in database.execute("SELECT state_type FROM flow_run")]


def test_a_killed_server_is_there_again_and_shows_the_whole_run(finished, migrated, text, tmp_path):
    home, marker = new_home(migrated, tmp_path / "home"), new_marker()
    run = start(home, "run", write_study(tmp_path), *text, env=marked(home, marker))
    server_at_work(marker, home).kill()
    output = run.communicate(timeout=HANG_SECONDS)[0]
    assert run.returncode == 0, output
    assert output.count(DIED) == 1
    require_no_dump(output, FINISH_NOT_RECORDED, GIVEN_UP)
    assert computed(output) == TINY_STEPS
    assert scores(home) == scores(finished)
    wait_until(lambda: not survivors(marker))
    assert flow_runs(home) == ["COMPLETED"]


@contextlib.contextmanager
def taken(port: int) -> Iterator[None]:
    """Somebody else listens on the port, and hangs up on whoever calls."""
    with socket.create_server(("127.0.0.1", port)) as listener:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def port_of(server: psutil.Process) -> int:
    command = server.cmdline()
    return int(command[command.index("--port") + 1])


def test_a_run_whose_server_cannot_come_back_ends_without_it(finished, migrated, text, tmp_path):
    home, marker = new_home(migrated, tmp_path / "home"), new_marker()
    run = start(home, "run", write_study(tmp_path), *text, env=marked(home, marker))
    server = server_at_work(marker, home)
    port = port_of(server)
    server.kill()
    server.wait()
    with taken(port):
        wait_until(lambda: len(list(Store(home).records())) == TINY_STEPS)
        output = run.communicate(timeout=HANG_SECONDS)[0]
    assert run.returncode == 0, output
    assert [output.count(words) for words in (DIED, GIVEN_UP, FINISH_NOT_RECORDED)] == [1, 1, 1]
    require_no_dump(output)
    assert computed(output) == TINY_STEPS
    assert scores(home) == scores(finished)
    wait_until(lambda: not survivors(marker))


SET = """
import sys
from prefect.client.orchestration import get_client
from prefect.states import Cancelling

with get_client(sync_client=True) as client:
    (run,) = [run for run in client.read_flow_runs() if run.state.is_running()]
    if sys.argv[1] == "deleted":
        client.delete_flow_run(run.id)
    else:
        client.set_flow_run_state(run.id, Cancelling())
"""
"""What the UI and `prefect flow-run cancel` and `delete` ask the server for."""


def as_a_client_of(server: psutil.Process, home: Path) -> dict[str, str]:
    """The environment of somebody who knows the server's secret."""
    theirs = server.environ()
    secret = theirs["PREFECT_SERVER_API_AUTH_STRING"].partition(":")[2]
    return environment(home, **client_settings(home, theirs["PREFECT_API_URL"], secret))


@pytest.mark.parametrize("how", ["cancelled", "deleted"])
def test_a_flow_run_that_is_ended_in_prefect_ends_the_run_with_a_sentence(
    how, migrated, text, tmp_path
):
    home, marker, study = new_home(migrated, tmp_path / "home"), new_marker(), write_study(tmp_path)
    run = start(home, "run", study, *text, env=marked(home, marker))
    settings = as_a_client_of(server_at_work(marker, home), home)
    subprocess.run([sys.executable, "-c", SET, how], env=settings, check=True)
    output = run.communicate(timeout=HANG_SECONDS)[0]
    assert run.returncode == 3, output
    assert f"{how} in Prefect while the study ran" in output
    assert "run the same command again: finished steps are in the store" in output
    require_no_dump(output)
    wait_until(lambda: not survivors(marker))
    assert flow_runs(home) == ["CANCELLED"] * (how == "cancelled")
    assert 0 < len(list(Store(home).records())) < TINY_STEPS


def test_a_server_that_refuses_the_run_is_named_with_a_sentence(
    migrated: Path, text: Arguments, tmp_path: Path
) -> None:
    # A server of the user's own with a password: it says that it is well to everybody.
    home, port = new_home(migrated, tmp_path / "home"), unused_port()
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
    theirs = environment(
        home,
        PREFECT_HOME=str(home / "prefect"),
        PREFECT_SERVER_API_AUTH_STRING="user:password",
        PREFECT_SERVER_UI_ENABLED="false",
    )
    wrong = environment(home, PREFECT_API_URL=url, PREFECT_API_AUTH_STRING="user:wrong")
    with subprocess.Popen(command, env=theirs, stdout=subprocess.DEVNULL) as server:
        wait_until(lambda: answers(f"{url}/health"))
        run = start(home, "run", write_study(tmp_path), *text, env=wrong)
        output = run.communicate(timeout=HANG_SECONDS)[0]
        server.terminate()
    assert run.returncode == 3, output
    assert "set PREFECT_API_AUTH_STRING" in output
    require_no_dump(output)
