"""Measure the time to build a large catalog, and the time of a query of each view.

The script invents about 10,000 cells: 36 methods, three seeds, and 96 combinations of task and
length (perplexity, RULER's thirteen tasks, LongBench's sixteen, passkey, needle, many-shot), each
with 100 answers. The time includes the comparisons between methods, but not reading a store. A
query fetches the first row of a view and counts its rows. The script checks the numbers of cells
and samples, and reads all rows of a view before it times the query.
"""

from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from measuring import Row, at_most, measure, timed
from numpy.typing import NDArray

from catalog.build import write_tables
from catalog.queries import open_catalog

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


def rows(options: Namespace) -> Iterator[Row]:
    tables, path = made_up(options.answers), options.folder / "catalog.duckdb"
    built = timed(lambda: write_tables(tables, path))
    with open_catalog(path) as connection:

        def count(table: str) -> int:
            ((number,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
            return int(number)

        def query(view: str) -> int:
            connection.execute(f"FROM {view} LIMIT 1").fetchall()
            return count(view)

        cells, samples = count("store.cell"), count("store.sample")
        assert (cells, samples) == (tables["cell"].num_rows, tables["sample"].num_rows)
        size = f"{cells:,} cells, {samples:,} samples, {path.stat().st_size / 1e6:.0f} MB"
        limit = at_most(built.wall, 20.0)
        yield {"what": f"catalog of {size}", "rows": None, "seconds": built.wall, "limit": limit}
        views = connection.execute(
            "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal"
        ).fetchall()
        for (view,) in sorted(views):
            connection.execute(f"FROM {view}").fetchall()
            seconds, _, number = timed(partial(query, view))
            figures = {"rows": number, "seconds": seconds, "limit": at_most(seconds, 0.3)}
            yield {"what": f"query of `{view}`", **figures}


def made_up(answers: int) -> dict[str, pa.Table]:
    """Return random tables with the columns of `catalog.extraction.extract`."""
    rng = np.random.default_rng(0)
    cells: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    samples: list[pa.Table] = []
    combinations = [
        (benchmark, task, length)
        for benchmark, (tasks, lengths) in TASKS.items()
        for task, length in product(tasks, lengths)
    ]
    for (method, frozen), seed, combination in product(METHODS, SEEDS, combinations):
        benchmark, task, length = combination
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
        names = [str(number) if is_text else None for number in range(answers)]
        score, sample = score_and_samples(short, unit, unit, length, values, names)
        scores.append(score)
        samples.append(sample.append_column("prediction", [["an answer"] * answers]))
    study = {
        "study": "made-up", "hypothesis": "h", "base_model": "base",
        "target_context": TARGET, "trained_context": TRAINED, "match": "tokens",
        "arguments": "made-up",
    }  # fmt: skip
    return {
        "study": pa.Table.from_pylist([study]),
        "cell": pa.Table.from_pylist(cells),
        "score": pa.Table.from_pylist(scores),
        "sample": pa.concat_tables(samples),
    }


def score_and_samples(
    cell: str,
    metric: str,
    unit: str,
    length: int,
    values: NDArray[np.float64],
    clusters: list[str | None],
) -> tuple[dict[str, Any], pa.Table]:
    """Return the row of a cell in the table `score`, and its rows in the table `sample`."""
    is_text = unit == "perplexity"
    score = {
        "cell": cell, "metric": metric, "unit": unit, "num_samples": len(values),
        "value": float(np.exp(values.mean()) if is_text else values.mean()),
        "higher_is_better": not is_text, "is_default": True,
    }  # fmt: skip
    samples = {
        "cell": [cell] * len(values), "sample": np.arange(len(values)),
        "eval_length": [length] * len(values), "score": values,
        "cluster": pa.array(clusters, pa.string()),
    }  # fmt: skip
    return score, pa.table(samples)


if __name__ == "__main__":
    measure(__doc__, rows, answers=100)
