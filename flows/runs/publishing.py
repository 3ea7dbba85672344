"""Show the results of a deployment's run in Prefect's UI, as artifacts of the flow run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from prefect.artifacts import create_link_artifact, create_table_artifact

from lce_core import formats
from lce_core.environment import for_child
from lce_core.study.variants import variant_label
from tasks.questions import catalog_path, read
from tasks.tracking import pages_of

_RESULTS = (
    "SELECT base_model, method, frozen, benchmark, eval_length, value, num_done, num_planned"
    " FROM benchmark_by_length WHERE study = '{study}' ORDER BY ALL"
)


def publish_results(study: str, home: Path) -> None:
    """Create a table of the study's results, a link to its report and one to its MLflow charts."""
    create_table_artifact(
        results_table(study, home),
        key=f"results-{study}",
        description="Means over seeds and tasks by evaluated length in tokens. 2/3: two of three"
        " cells are done.",
    )
    report = home / "reports" / f"{study}.html"
    command = [sys.executable, "-m", "dashboards", "--catalog", str(catalog_path(home))]
    command += ["--study", study, "--out", str(report)]
    if subprocess.run(command, env=for_child(os.environ), capture_output=True).returncode == 0:
        where = f"{report} on {socket.gethostname()}. Browsers do not follow links to files: open"
        create_link_artifact(
            report.as_uri(),
            link_text=f"report of {study}",
            key=f"report-{study}",
            description=f"{where} the file yourself, or run `lce report {study}`.",
        )
    if pages := pages_of(home, study):
        create_link_artifact(
            pages.methods,
            link_text=f"MLflow charts of {study}",
            key=f"mlflow-{study}",
            description="One line per method: score against evaluated length.",
        )


def results_table(study: str, home: Path) -> list[dict[str, Any]]:
    """Return one row per variant and benchmark, with a column per length (or "DONE/PLANNED")."""
    found: dict[tuple[str, ...], dict[int, str]] = {}
    for model, method, frozen, benchmark, length, value, done, planned in read(
        home, _RESULTS.format(study=study)
    ):
        row = found.setdefault((model, variant_label(method, frozen), benchmark), {})
        row[length] = f"{done}/{planned}" if value is None else formats.short_score(value)
    lengths = sorted({length for row in found.values() for length in row})
    names = ("base model", "variant", "benchmark")
    return [
        dict(zip(names, key, strict=True)) | {f"{n:,}": row.get(n, "") for n in lengths}
        for key, row in found.items()
    ]
