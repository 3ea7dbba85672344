"""The shipped smoke study by way of `lce up` and Prefect's own command line, as a user types it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from catalog.queries import run_query
from flows.daemons import ask
from tests.support.ports import unused_port
from tests.support.repository import ROOT
from tests.support.studies import environment, lce

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_prefect_deployment_run_as_typed_completes(home: Path) -> None:
    server, mlflow = unused_port(), unused_port()
    lce(home, "up", "--port", str(server), "--mlflow-port", str(mlflow))
    try:
        settings = {
            "PREFECT_API_URL": f"http://127.0.0.1:{server}/api",
            "PREFECT_HOME": str(home / "prefect"),
        }
        answer = subprocess.run(
            [
                *(sys.executable, "-m", "prefect", "deployment", "run", "controlled-study"),
                *("-p", "study=smoke", "--watch"),
            ],
            cwd=ROOT,
            env=environment(home, **settings),
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        _, rows = run_query(
            home / "catalog.duckdb", "SELECT DISTINCT status FROM cells WHERE study = 'smoke'"
        )
        assert rows == [("done",)]
        artifacts = ask(f"{settings['PREFECT_API_URL']}/artifacts/filter", {})
        assert [one["data"] for one in artifacts if one["key"] == "study-progress"] == [100.0]
    finally:
        lce(home, "down")
