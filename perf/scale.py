"""Measure the overhead of a large study: ten thousand cells that toss coins instead of a model.

The study has one tiny model, five methods, a hundred tasks at twenty lengths, and a hundred answers
per cell. The script times `lce run`; the same command again, which must compute nothing and start
one Prefect task; `lce rebuild catalog`, which must not change the catalog's digest; `lce report`;
and one query to the catalog and to MLflow, with equal results. For comparison it runs a naive flow
twice: one Prefect task per cell, with persisted results and caching by inputs. The naive flow has
fewer cells, so its rerun is compared per cell.

    python perf/scale.py [--cells 10000] [--naive 1000] [--out docs/performance/scale.json]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from figures import command_line, publish
from searching import searching_seconds
from study import LCE, computed, task_runs, timed

from catalog.queries import logical_digest, run_query
from flows.servers.temporary_server import client_settings, temporary_server
from lce_core.store.records import environment

PLUGINS = Path(__file__).resolve().parent / "plugins"
METHODS = ("none", "pi", "ntk_aware", "dynamic_ntk_aware", "yarn")
NUM_TASKS, NUM_SAMPLES = 100, 100
LIMITS = {
    "run, ms a cell": 30.0,
    "everything done, s": 20.0,
    "everything done, Prefect tasks": 1,
    "catalog from the store, s": 20.0,
    "report, s": 30.0,
    "report, MB": 10.0,
    "naive rerun, times ours by the cell": 20.0,
}
"""Maximum value of each figure; for the last figure the minimum."""
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


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--cells", type=int, default=10_000, help="approximate number of cells")
    parser.add_argument("--naive", type=int, default=1000, help="cells of the naive flow")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lce-perf-") as folder:
        found = measure(Path(folder), options.cells, options.naive)
    print(f"{found['cells']:,} cells, {found['answers']:,} answers\n")
    print("| what | measured | limit |\n|---|--:|--:|")
    for what, value in found["figures"].items():
        print(f"| {what} | {value:,.5g} | {LIMITS.get(what, '-')} |")
    publish(found, options.out)


def measure(folder: Path, cells: int, naive: int) -> dict[str, Any]:
    """Return all figures, after checking that reruns and rebuilds change nothing."""
    home, file = folder / "home", folder / "scale.yaml"
    lengths = max(1, round(cells / len(METHODS) / NUM_TASKS))
    file.write_text(yaml.safe_dump(study(lengths)), encoding="utf-8")
    run = [*LCE, "run", str(file), "--plugins", str(PLUGINS), "--slots", "2"]
    first, output = timed(run, home)
    catalog = home / "catalog.duckdb"
    digest, tasks = logical_digest(catalog), task_runs(home)
    ((num_cells, answers),) = run_query(
        catalog, "SELECT (SELECT count(*) FROM scores), (SELECT count(*) FROM samples)"
    )[1]
    assert num_cells == lengths * len(METHODS) * NUM_TASKS
    assert answers == num_cells * NUM_SAMPLES
    again, second = timed(run, home)
    assert computed(second) == 0, second
    assert computed(output) >= num_cells
    assert logical_digest(catalog) == digest
    done_tasks = task_runs(home) - tasks
    rebuilt, _ = timed([*LCE, "rebuild", "catalog"], home)
    assert logical_digest(catalog) == digest
    reported, _ = timed([*LCE, "report", "scale"], home)
    searching = searching_seconds(home, "scale", "coins")
    script = folder / "naive.py"
    script.write_text(NAIVE, encoding="utf-8")
    with temporary_server(folder / "naive") as server:
        to_server = client_settings(folder / "naive", server.wait_ready(), server.secret)

        def naively() -> tuple[float, float]:
            command = [sys.executable, str(script), str(naive)]
            seconds, value = json.loads(timed(command, folder / "naive", **to_server)[1])
            return seconds / naive, value

        naive_first, value = naively()
        naive_again, value_again = naively()
    assert value == value_again
    figures = {
        "run, s": first,
        "run, ms a cell": 1000 * first / num_cells,
        "everything done, s": again,
        "everything done, ms a cell": 1000 * again / num_cells,
        "everything done, Prefect tasks": done_tasks,
        "catalog from the store, s": rebuilt,
        "report, s": reported,
        "report, MB": (home / "reports" / "scale.html").stat().st_size / 1e6,
        "means by method and length from the catalog, s": searching["catalog"],
        "the same by MLflow's search API, s": searching["mlflow"],
        f"naive flow of {naive:,}, ms a cell": 1000 * naive_first,
        f"naive flow of {naive:,} again, ms a cell": 1000 * naive_again,
        "naive rerun, times ours by the cell": naive_again * num_cells / again,
    }
    return {
        "figures": figures,
        "cells": num_cells,
        "answers": answers,
        "environment": environment(),
    }


def study(lengths: int) -> dict[str, Any]:
    """Return the study with a hundred tasks at `lengths` lengths for each method."""
    return {
        "study": "scale",
        "hypothesis": "A study costs what its work costs.",
        "target_context": 256,
        "train_tokens": 8192,
        "corpus": {"name": "local_text"},
        "base_models": [{"name": "toy_llama", "steps": 1}],
        "methods": [{"name": name} for name in METHODS],
        "training": {"learning_rate": 5.0e-4, "tokens_per_step": 2048, "warmup_steps": 1},
        "upsampling": {"long_document_tokens": 256},
        "evaluation": {"held_out_tokens": 16384},
        "benchmarks": [
            {
                "name": "coins",
                "profile": "tiny",
                "lengths": [64 + 8 * number for number in range(lengths)],
                "num_tasks": NUM_TASKS,
                "num_samples": NUM_SAMPLES,
            }
        ],
        "seeds": [0],
    }


if __name__ == "__main__":
    main()
