"""A run whose Prefect server dies, is silent, refuses it or ends its flow run loses nothing.

Strategy: two runs disturb the server that they started; the others share a server of the user's.
"""

import contextlib
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flows.servers.daemons import answers
from flows.servers.guarded_prefect import prefect_database
from lce_core.store.artifacts import Store
from tests.support.ports import unused_port
from tests.support.processes import marked, new_marker, playing, require_no_dump, survivors
from tests.support.studies import (
    TINY_STEPS,
    computed,
    ended,
    environment,
    new_home,
    scores,
    start,
    wait_until,
    write_study,
)

pytestmark = pytest.mark.slow

Arguments = tuple[str, ...]


def wait_for_first_rows(home: Path) -> None:
    """Wait until a run has computed something and has more to do."""
    wait_until(lambda: list((home / "artifacts").glob("rows/jsonl*")))


@pytest.mark.parametrize("dies", [True, False])
def test_a_server_that_dies_or_is_silent_for_20_seconds_delays_nothing_but_its_records(
    dies, finished, migrated, text, tmp_path
):
    home, marker = new_home(migrated, tmp_path / "home"), new_marker()
    run = start(home, "run", write_study(tmp_path), *text, env=marked(home, marker))
    wait_for_first_rows(home)
    (server,) = playing(marker, "server")
    if dies:
        server.kill()
    else:
        server.suspend()
        time.sleep(20)
        server.resume()
    output = ended(run)
    assert output.count("died: its UI does not show that the run ended.") == dies
    require_no_dump(output)
    assert computed(output) == TINY_STEPS
    assert scores(home) == scores(finished)
    wait_until(lambda: not survivors(marker))
    if dies:
        with contextlib.closing(sqlite3.connect(prefect_database(home))) as database:
            assert database.execute("SELECT state_type FROM flow_run").fetchall() == [("RUNNING",)]


@pytest.fixture(scope="module")
def theirs(migrated, tmp_path_factory) -> Iterator[httpx.Client]:
    """A client of a server of the user's own, with a password that /health does not require."""
    home, port = new_home(migrated, tmp_path_factory.mktemp("theirs") / "home"), unused_port()
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
    settings = environment(
        home,
        PREFECT_HOME=str(home / "prefect"),
        PREFECT_SERVER_API_AUTH_STRING="user:password",
        PREFECT_SERVER_DATABASE_TIMEOUT="60",
        PREFECT_SERVER_UI_ENABLED="false",
    )
    url = f"http://127.0.0.1:{port}/api"
    with (
        subprocess.Popen(command, env=settings, stdout=subprocess.DEVNULL) as server,
        httpx.Client(base_url=url, auth=("user", "password"), timeout=60) as client,
    ):
        wait_until(lambda: answers(f"{url}/health"))
        yield client
        server.terminate()


def with_password(theirs: httpx.Client, password: str) -> dict[str, str]:
    url = str(theirs.base_url).rstrip("/")
    return {"PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": f"user:{password}"}


@pytest.mark.parametrize("how", ["cancelled", "deleted"])
def test_a_flow_run_that_is_ended_in_prefect_ends_the_run_with_a_sentence(
    how, theirs, migrated, text, tmp_path
):
    home, marker, study = new_home(migrated, tmp_path / "home"), new_marker(), write_study(tmp_path)
    variables = marked(home, marker) | with_password(theirs, "password")
    run = start(home, "run", study, *text, env=variables)
    wait_for_first_rows(home)
    running = {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
    (found,) = theirs.post("flow_runs/filter", json=running).json()
    address = f"flow_runs/{found['id']}"
    if how == "deleted":
        wait_until(lambda: theirs.delete(address).is_success)  # 503 while the database is busy
    else:
        cancelling = {"state": {"type": "CANCELLING"}}
        wait_until(lambda: theirs.post(f"{address}/set_state", json=cancelling).is_success)
    output = ended(run, 3)
    assert f"{how} in Prefect while the study ran" in output
    assert "run the same command again: finished steps are in the store" in output
    require_no_dump(output)
    wait_until(lambda: not survivors(marker))
    state = theirs.get(address).json().get("state_type")
    assert state == ("CANCELLED" if how == "cancelled" else None)
    assert 0 < len(list(Store(home).records())) < TINY_STEPS


def test_a_server_that_refuses_the_run_is_named_with_a_sentence(
    theirs: httpx.Client, migrated: Path, text: Arguments, tmp_path: Path
) -> None:
    home = new_home(migrated, tmp_path / "home")
    wrong = environment(home, **with_password(theirs, "wrong"))
    run = start(home, "run", write_study(tmp_path), *text, env=wrong)
    output = ended(run, 3)
    assert "set PREFECT_API_AUTH_STRING" in output
    require_no_dump(output)
