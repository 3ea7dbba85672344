"""A study by way of `lce up` and Prefect's own command line, as a user types it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.queries import run_query
from flows.servers.daemons import ask
from lce_core.access import server_secret
from lce_core.study.progress import StepState
from lce_core.study.units import units_to_do
from tests.support.ports import unused_port
from tests.support.repository import ROOT
from tests.support.studies import (
    HANG_SECONDS,
    TINY,
    compiled,
    environment,
    lce,
    new_home,
    wait_until,
    write_study,
)

pytestmark = pytest.mark.slow


def edges_of_plan(text: Path) -> Iterator[tuple[str, str]]:
    """Yield every pair of units of which the second reads results of the first."""
    plan = compiled(TINY, text)
    units = units_to_do(plan, dict.fromkeys(plan.steps, StepState("missing", "new")))
    for unit in units:
        yield from ((other.name, unit.name) for other in units if other.outputs & unit.needs)
        if not any(unit.outputs & other.needs for other in units):
            yield unit.name, "update catalog and MLflow"


def edges_in_prefect(graph: dict[str, Any]) -> set[tuple[str, str]]:
    nodes = dict(graph["nodes"])
    return {
        (nodes[parent["id"]]["label"], node["label"])
        for node in nodes.values()
        for parent in node["parents"]
    }


def test_prefect_deployment_run_as_typed_completes(migrated, library, tmp_path):
    home, study = new_home(migrated, tmp_path / "home"), Path(write_study(tmp_path))
    lce(home, "lock", str(study), "--data-folder", f"text={library}")
    # A number moves after the lock, so the run notes that ids have changed.
    text = study.read_text("utf-8")
    assert "window: 64" in text
    study.write_text(text.replace("window: 64", "window: 48"), "utf-8")
    server, mlflow = unused_port(), unused_port()
    told = lce(home, "up", "--port", str(server), "--mlflow-port", str(mlflow))
    (command,) = re.findall("^Run the toy study: (.*)$", told, flags=re.MULTILINE)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = environment(home, PATH=path, PREFECT_HOME=str(home / "prefect"))
    del env["LCE_HOME"]  # a user may have typed it before `lce up` only
    parameters = json.dumps(
        {"study": str(study), "execution": {"data_folders": {"text": str(library)}}}
    )
    try:
        answer = subprocess.run(
            f"{command} --params '{parameters}' --watch",
            shell=True,
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        _, rows = run_query(
            home / "catalog.duckdb", "SELECT DISTINCT status FROM cells WHERE study = 'tiny'"
        )
        assert rows == [("done",)]
        secret, url = server_secret(home, "prefect"), f"http://127.0.0.1:{server}/api"
        artifacts = ask(f"{url}/artifacts/filter", {}, secret=secret)
        results = {one["key"]: one for one in artifacts}
        table = json.loads(results["results-tiny"]["data"])
        assert {"base model", "variant", "benchmark", "128"} <= set(table[0])
        assert (home / "reports" / "tiny.html").is_file()
        assert "tiny.html" in results["report-tiny"]["data"]
        assert f":{mlflow}/#/experiments/" in results["mlflow-tiny"]["data"]
        (run,) = ask(f"{url}/flow_runs/filter", {}, secret=secret)
        assert re.fullmatch(rf"{re.escape(str(study))}, [0-9a-f]{{8}}", run["name"])
        graph, planned = f"{url}/flow_runs/{run['id']}/graph-v2", set(edges_of_plan(library))
        # Task runs reach the server as events, the last ones perhaps after the flow's end.
        wait_until(lambda: edges_in_prefect(ask(graph, secret=secret)) == planned, 300)
        tasks = ask(f"{url}/task_runs/filter", {}, secret=secret)
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
