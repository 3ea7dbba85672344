"""Measure the toy study: first run, rerun with everything done, `lce plan` and `lce sql`.

The script runs `lce run toy` in an empty store and again, and checks that the second run computed
nothing and did not change the catalog. Times are wall seconds of whole commands; limits are those
of docs/performance.md. The script takes about as long as the study.

    python perf/study.py [--out docs/performance/study.json]
"""

from __future__ import annotations

import os
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import command_line, publish

from catalog.queries import logical_digest, run_query
from lce_core.store.records import environment

LCE = [sys.executable, "-c", "from lce.cli import main; main()"]
SPEC = [sys.executable, "-c", "import sys, lce_core.study.spec; assert 'torch' not in sys.modules"]
SQL = ["sql", "SELECT method, frozen, avg(value) FROM scores GROUP BY ALL"]
QUICK_RUNS = 5
LIMITS = {
    "toy study, cold store": None,
    "toy study, everything done": 15.0,
    "Prefect tasks of a run with everything done": 1,
    "lce plan toy": 5.0,
    "lce sql": 2.0,
    "import lce_core.study.spec (no torch)": None,
}


def main() -> None:
    out = command_line(__doc__).parse_args().out
    with tempfile.TemporaryDirectory(prefix="lce-perf-") as folder:
        found = measure(Path(folder) / "home")
    print("| what | measured | limit |\n|---|--:|--:|")
    for what, limit in LIMITS.items():
        value = found["figures"][what]
        shown = str(value) if isinstance(value, int) else f"{value:.2f} s"
        allowed = "-" if limit is None else f"{limit:g}{'' if isinstance(limit, int) else ' s'}"
        print(f"| {what} | {shown} | {allowed} |")
    publish(found, out, f"{found['steps']} steps")


def measure(home: Path) -> dict[str, Any]:
    """Return all figures, after checking that a rerun changes nothing."""
    cold, first = timed([*LCE, "run", "toy"], home)
    catalog = home / "catalog.duckdb"
    digest, tasks = logical_digest(catalog), task_runs(home)
    done, second = timed([*LCE, "run", "toy"], home)
    assert computed(second) == 0
    assert logical_digest(catalog) == digest
    figures: dict[str, Any] = {
        "toy study, cold store": cold,
        "toy study, everything done": done,
        "Prefect tasks of a run with everything done": task_runs(home) - tasks,
        "lce plan toy": median([*LCE, "plan", "toy"], home),
        "lce sql": median([*LCE, *SQL], home),
        "import lce_core.study.spec (no torch)": median(SPEC, home),
    }
    _, kinds = run_query(
        catalog, "SELECT kind, count(*), sum(seconds) FROM artifacts GROUP BY ALL ORDER BY ALL"
    )
    return {
        "figures": figures,
        "steps": computed(first),
        "worker_seconds": {kind: {"steps": n, "seconds": s} for kind, n, s in kinds},
        "environment": environment(),
    }


def timed(command: list[str], home: Path, **more: str) -> tuple[float, str]:
    """Run a command that must succeed; return its wall seconds and its output."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MLFLOW_"))}
    began = time.perf_counter()
    answer = subprocess.run(
        command,
        env={**kept, **more, "LCE_HOME": str(home)},
        cwd=home.parent,  # a folder without Prefect settings
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    return time.perf_counter() - began, answer.stdout


def median(command: list[str], home: Path) -> float:
    """Return the median wall seconds of a quick command."""
    return statistics.median(timed(command, home)[0] for _ in range(QUICK_RUNS))


def computed(output: str) -> int:
    """Return the number of steps that a run reports as computed."""
    found = re.search(r"([\d,]+) steps computed", output)
    assert found, output
    return int(found[1].replace(",", ""))


def task_runs(home: Path) -> int:
    """Count the task runs in the home's Prefect database."""
    with sqlite3.connect(home / "prefect" / "prefect.db") as database:
        return int(database.execute("SELECT count(*) FROM task_run").fetchone()[0])


if __name__ == "__main__":
    main()
