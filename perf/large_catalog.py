"""Measure the time to build a large catalog, and the time of a query of each view.

The script invents about 10,000 cells: 36 methods, three seeds, and 96 combinations of task and
length (perplexity, RULER's thirteen tasks, LongBench's sixteen, passkey, needle, many-shot), each
with 100 answers. The time includes the comparisons between methods, but not reading a store. Before
it prints, the script checks the numbers of cells and samples, and reads all rows of every view.

    python perf/large_catalog.py [--answers 100] [--out docs/performance/large_catalog.json]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from figures import command_line, publish

import catalog.comparisons
from catalog.build import write_tables
from catalog.queries import open_catalog
from lce_core.store.records import environment

SEEDS = (0, 1, 2)
METHODS = (("none", True), *((f"method_{number}", number % 2 == 0) for number in range(35)))
TRAINED, TARGET = 1024, 4096
LENGTHS = (1024, 2048, 3072, 4096)
TASKS = {
    "perplexity": (("code", "prose"), LENGTHS),
    "ruler": (tuple(f"ruler_{number}" for number in range(13)), LENGTHS),
    "longbench": (tuple(f"longbench_{number}" for number in range(16)), (TARGET,)),
    "passkey": (("single",), LENGTHS),
    "needle": (("single",), LENGTHS),
    "many_shot": (("shots_10", "shots_100", "shots_1000"), LENGTHS),
}
LIMIT_SECONDS, LIMIT_VIEW_SECONDS = 20.0, 0.3


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--answers", type=int, default=100, help="scored prompts of each cell")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lce-perf-") as folder:
        found = measure(Path(folder) / "catalog.duckdb", options.answers)
    print(f"{found['cells']} cells, {found['samples']} samples, {found['bytes'] / 1e6:.0f} MB\n")
    print("| what | rows | seconds | limit |\n|---|--:|--:|--:|")
    print(f"| tables to catalog | | {found['seconds']:.2f} | {LIMIT_SECONDS:g} |")
    print(f"| of it comparisons | | {found['comparisons']:.2f} | |")
    for view, (rows, seconds) in found["views"].items():
        print(
            f"| first row and count of `{view}` | {rows} | {seconds:.3f} | {LIMIT_VIEW_SECONDS} |"
        )
    publish(found, options.out)


def measure(path: Path, answers: int) -> dict[str, Any]:
    tables = made_up(answers)
    spent: list[float] = []
    fill = catalog.comparisons.fill_comparisons

    def timed(connection: Any) -> None:
        start = time.perf_counter()
        fill(connection)
        spent.append(time.perf_counter() - start)

    catalog.comparisons.fill_comparisons = timed
    start = time.perf_counter()
    write_tables(tables, path)
    seconds = time.perf_counter() - start
    with open_catalog(path) as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM store.{name}").fetchall()[0][0]
            for name in ("cell", "sample")
        ]
        assert counts == [tables["cell"].num_rows, tables["sample"].num_rows]
        names = connection.execute(
            "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal"
        ).fetchall()
        views = {name: _asked(connection, name) for (name,) in sorted(names)}
    return {
        "cells": counts[0], "samples": counts[1], "bytes": path.stat().st_size,
        "seconds": seconds, "comparisons": spent[0], "views": views,
        "environment": environment(),
    }  # fmt: skip


def _asked(connection: Any, view: str) -> tuple[int, float]:
    """Return the number of rows of a view, and the seconds of fetching one row and counting all."""
    connection.execute(f"FROM {view}").fetchall()
    start = time.perf_counter()
    connection.execute(f"FROM {view} LIMIT 1").fetchall()
    ((rows,),) = connection.execute(f"SELECT count(*) FROM {view}").fetchall()
    return rows, time.perf_counter() - start


def made_up(answers: int) -> dict[str, pa.Table]:
    """Return random tables with the columns of `catalog.extraction.extract`."""
    rng = np.random.default_rng(0)
    cells: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    samples: list[pa.Table] = []
    for method, frozen, seed, benchmark, task, length in _planned():
        short = f"{len(cells):012}"
        is_text = benchmark == "perplexity"
        values = rng.normal(2.0, 0.3, answers) if is_text else 1.0 * (rng.random(answers) < 0.7)
        unit = "perplexity" if is_text else "accuracy"
        cells.append(
            {
                "study": "made-up", "position": len(cells), "cell": short, "base_model": "base",
                "method": method, "frozen": frozen, "exact_attention": True, "seed": seed,
                "benchmark": benchmark, "task": task, "eval_length": length, "profile": "tiny",
                "status": "done", "attempts": 1,
            }
        )  # fmt: skip
        scores.append(
            {
                "cell": short, "metric": unit, "unit": unit, "num_samples": answers,
                "value": float(np.exp(values.mean()) if is_text else values.mean()),
                "higher_is_better": not is_text, "is_default": True,
            }
        )  # fmt: skip
        names = [str(number) if is_text else None for number in range(answers)]
        samples.append(
            pa.table(
                {
                    "cell": [short] * answers, "sample": np.arange(answers),
                    "eval_length": [length] * answers, "score": values,
                    "cluster": pa.array(names, pa.string()),
                    "prediction": ["an answer"] * answers,
                }
            )
        )  # fmt: skip
    study = {
        "study": "made-up", "hypothesis": "h", "base_model": "base",
        "target_context": TARGET, "trained_context": TRAINED,
    }  # fmt: skip
    return {
        "study": pa.Table.from_pylist([study]),
        "cell": pa.Table.from_pylist(cells),
        "score": pa.Table.from_pylist(scores),
        "sample": pa.concat_tables(samples),
    }


def _planned() -> Iterator[tuple[str, bool, int, str, str, int]]:
    for method, frozen in METHODS:
        for seed in SEEDS:
            for benchmark, (tasks, lengths) in TASKS.items():
                for task in tasks:
                    for length in lengths:
                        yield method, frozen, seed, benchmark, task, length


if __name__ == "__main__":
    main()
