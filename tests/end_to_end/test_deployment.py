"""The shipped smoke study by way of `lce up` and Prefect's own command line, as a user types it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from catalog.queries import run_query
from flows.servers.daemons import ask
from flows.settings import STUDIES
from lce_core.access import server_secret
from tests.support.ports import unused_port
from tests.support.repository import ROOT
from tests.support.studies import HANG_SECONDS, environment, lce

MOVED = ("window: 64", "window: 48")

pytestmark = pytest.mark.slow


def locked_and_changed(home: Path, folder: Path) -> Path:
    """The shipped smoke study in a folder of its own, one of whose numbers moved since its lock."""
    study = folder / "smoke.yaml"
    text = (STUDIES / "smoke.yaml").read_text("utf-8")
    study.write_text(text, "utf-8")
    lce(home, "lock", str(study))
    study.write_text(text.replace(*MOVED), "utf-8")
    assert study.read_text("utf-8") != text
    return study


def test_prefect_deployment_run_as_typed_completes(home, tmp_path):
    study = locked_and_changed(home, tmp_path)
    server, mlflow = unused_port(), unused_port()
    told = lce(home, "up", "--port", str(server), "--mlflow-port", str(mlflow))
    (command,) = re.findall("^Run the toy study: (.*)$", told, flags=re.MULTILINE)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = environment(home, PATH=path, PREFECT_HOME=str(home / "prefect"))
    del env["LCE_HOME"]  # a user may have typed it before `lce up` only
    try:
        answer = subprocess.run(
            f"{command} -p study={study} --watch",
            shell=True,
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        _, rows = run_query(
            home / "catalog.duckdb", "SELECT DISTINCT status FROM cells WHERE study = 'smoke'"
        )
        assert rows == [("done",)]
        secret, url = server_secret(home, "prefect"), f"http://127.0.0.1:{server}/api"
        artifacts = ask(f"{url}/artifacts/filter", {}, secret=secret)
        results = {one["key"]: one for one in artifacts}
        table = json.loads(results["results-smoke"]["data"])
        assert {"base model", "variant", "benchmark", "128"} <= set(table[0])
        assert (home / "reports" / "smoke.html").is_file()
        assert "smoke.html" in results["report-smoke"]["data"]
        assert f":{mlflow}/#/experiments/" in results["mlflow-smoke"]["data"]
        runs = ask(f"{url}/flow_runs/filter", {}, secret=secret)  # also earlier ones of the home
        (name,) = (run["name"] for run in runs if run["name"].startswith(str(study)))
        assert re.fullmatch(rf"{re.escape(str(study))}, [0-9a-f]{{8}}", name)
        tasks = ask(f"{url}/task_runs/filter", {}, secret=secret)
        assert "update catalog and MLflow" in {one["name"] for one in tasks}
        assert all(not re.search(r"-[0-9a-f]{3}$", one["name"]) for one in tasks)
        logs = ask(f"{url}/logs/filter", {}, secret=secret)
        assert any(line["message"].startswith("computing ") for line in logs)
        (noted,) = [line["message"] for line in logs if ".lock" in line["message"]]
        assert "changed ids (" in noted
        assert [one["data"] for one in artifacts if one["key"] == "study-progress"] == [100.0]
    finally:
        lce(home, "down")
    secrets = {server_secret(home, name) for name in ("prefect", "mlflow", "dashboard")}
    master = home / "services" / "secret"
    secrets.add(master.read_text("utf-8").strip())
    files = [path for path in home.rglob("*") if path.is_file() and path != master]
    assert (home / "prefect") in {path.parent for path in files}
    written = {path for path in files if any(s.encode() in path.read_bytes() for s in secrets)}
    assert written == set(), "a server's secret is in a file that more people may read"
