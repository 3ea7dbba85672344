"""Measure the overhead of a large study: ten thousand cells that toss coins instead of a model.

The study has one tiny model, five methods, a hundred tasks at twenty lengths, and a hundred answers
per cell. The script times `lce run`; the same command again, which must compute nothing; `lce
rebuild catalog`, which must not change the catalog's digest; and `lce report`. For comparison it
runs a naive flow twice: one Prefect task per cell, with persisted results and caching by inputs.
The naive flow has fewer cells, so its rerun is compared per cell.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import Row, at_least, measure
from study import LCE, row, run, run_twice

from catalog.queries import run_query
from flows.servers.temporary_server import client_settings, temporary_server
from tests.support.digests import catalog_digest
from tests.support.studies import SMOKE, computed, write_study

PLUGINS = Path(__file__).resolve().parent / "plugins"
METHODS = ("none", "pi", "ntk_aware", "dynamic_ntk_aware", "yarn")
NUM_TASKS, NUM_SAMPLES = 100, 100
NAIVE = """
import json
import sys
import time
from prefect import flow, task
from prefect.cache_policies import INPUTS
from prefect.task_runners import ThreadPoolTaskRunner

@task(persist_result=True, cache_policy=INPUTS)
def cell(number: int) -> dict[str, float]:
    return {"accuracy": (number * 37 % 101) / 100}

@flow(task_runner=ThreadPoolTaskRunner(max_workers=2), persist_result=False)
def naive(cells: int) -> float:
    return sum(one.result()["accuracy"] for one in [cell.submit(n) for n in range(cells)])

begun = time.perf_counter()
value = naive(int(sys.argv[1]))
print(json.dumps([time.perf_counter() - begun, value]))
"""
"""Script of the naive flow; it prints the flow's seconds without imports, and a sum to compare."""


def rows(options: Namespace) -> Iterator[Row]:
    home = options.folder / "home"
    lengths = max(1, round(options.cells / len(METHODS) / NUM_TASKS))
    file = write_study(options.folder, SMOKE, **changes(lengths))
    first, again = run_twice([file, "--plugins", str(PLUGINS), "--slots", "2"], home)
    catalog = home / "catalog.duckdb"
    digest = catalog_digest(catalog)
    ((cells, answers),) = run_query(
        catalog, "SELECT (SELECT count(*) FROM scores), (SELECT count(*) FROM samples)"
    )[1]
    assert cells == lengths * len(METHODS) * NUM_TASKS
    assert answers == cells * NUM_SAMPLES
    assert computed(first.output) >= cells
    yield row(f"run of {cells:,} cells, ms a cell", 1000 * first.wall / cells, 30.0)
    yield row("everything done, s", again.wall, 20.0)
    yield row("catalog from the store, s", run([*LCE, "rebuild", "catalog"], home).wall, 20.0)
    assert catalog_digest(catalog) == digest
    yield row("report, s", run([*LCE, "report", "scale"], home).wall, 30.0)
    yield row("report, MB", (home / "reports" / "scale.html").stat().st_size / 1e6, 10.0)
    script = options.folder / "naive.py"
    script.write_text(NAIVE, encoding="utf-8")
    naive = options.folder / "naive"
    with temporary_server(naive) as server:
        to_server = client_settings(naive, server.wait_ready(), server.secret)
        flow = [sys.executable, str(script), str(options.naive)]
        once, twice = (json.loads(run(flow, naive, **to_server).output) for _ in range(2))
    assert once[1] == twice[1]
    ratio = (twice[0] / options.naive) / (again.wall / cells)
    what = f"naive rerun of {options.naive:,} cells, times ours by the cell"
    yield {"what": what, "measured": ratio, "limit": at_least(ratio, 20.0)}


def changes(lengths: int) -> dict[str, Any]:
    """Return what turns `smoke` into a study with a hundred tasks at `lengths` lengths a method."""
    return {
        "study": "scale",
        "base_models": [{"name": "toy_llama", "steps": 1}],
        "methods": [{"name": name} for name in METHODS],
        "benchmarks": [
            {
                "name": "coins",
                "profile": "tiny",
                "lengths": [64 + 8 * number for number in range(lengths)],
                "num_tasks": NUM_TASKS,
                "num_samples": NUM_SAMPLES,
            }
        ],
    }


if __name__ == "__main__":
    measure(__doc__, rows, cells=10_000, naive=1000)
