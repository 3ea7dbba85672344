"""Time one query with the catalog and with MLflow's API: each method's mean score at each length.

perf/scale.py calls this on its finished store. MLflow has a run for each method and seed, a metric
for each task and a step for each length. Searching runs returns only the last step of a metric, so
the history of each metric needs a request.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from catalog import catalog_path
from catalog.queries import run_query
from tasks.tracking import tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient

Means = dict[tuple[str, int], float]
"""Mean over tasks and seeds, by method and length."""

SQL = """
SELECT method, eval_length, avg(value) FROM score_by_length
WHERE study = $study AND benchmark = $benchmark GROUP BY ALL
"""
REPEATS = 3


def searching_seconds(home: Path, study: str, benchmark: str) -> dict[str, float]:
    """Return the seconds of the query by "catalog" and by "mlflow", the fastest of three."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri(home))

    def by_catalog() -> Means:
        parameters = {"study": study, "benchmark": benchmark}
        rows = run_query(catalog_path(home), SQL, parameters=parameters)[1]
        return {(method, length): value for method, length, value in rows}

    def by_mlflow() -> Means:
        return _searched(client, study, benchmark)

    ours, theirs = by_catalog(), by_mlflow()
    assert ours
    assert ours.keys() == theirs.keys()
    assert all(math.isclose(ours[key], theirs[key], rel_tol=1e-12) for key in ours)
    return {"catalog": _fastest(by_catalog), "mlflow": _fastest(by_mlflow)}


def _searched(client: MlflowClient, study: str, benchmark: str) -> Means:
    experiment = client.get_experiment_by_name(study)
    assert experiment is not None
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    token = None
    while True:
        page = client.search_runs(
            [experiment.experiment_id], "tags.`lce.kind` = 'seed'", page_token=token
        )
        for run in page:
            for key in run.data.metrics:
                if key.startswith(f"{benchmark}/"):
                    for point in client.get_metric_history(run.info.run_id, key):
                        found[run.data.params["method"], point.step].append(point.value)
        token = page.token
        if not token:
            return {key: math.fsum(values) / len(values) for key, values in found.items()}


def _fastest(answer: Callable[[], Means]) -> float:
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        answer()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
