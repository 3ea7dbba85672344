"""Run the study smollm2-tuned until a time limit; report finished cells and training speed.

The base model is downloaded first, unless the home has it. At the time limit the run receives
SIGINT; the script then reads the finished results from the store.

    python perf/gpu_study.py --home FOLDER --seconds 120 --rows FILE.jsonl
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu_common import Rows, SkippedError, gib, parser
from gpu_training import speed_of

from lce_core.training.loss_log import LOG, read_entries

STUDY, BASE = "smollm2-tuned", "smollm2_135m_q4"
NEEDED = ("duckdb", "mlflow", "prefect")
"""Packages that `lce run` needs and the other sections do not."""
_STOP_SECONDS = 20.0


def main() -> int:
    """Append a row with the number of cells, and one for each training run."""
    given = parser(__doc__)
    given.add_argument("--home", type=Path, required=True)
    chosen = given.parse_args()
    rows = Rows(chosen.rows, chosen.seconds)
    rows.add({"what": "study"}, study, chosen.home, rows.deadline)
    for row in runs(chosen.home):
        rows.add({"what": "study run"}, dict, row)
    return rows.exit_code()


def study(home: Path, deadline: float) -> dict[str, Any]:
    """Run the study until the deadline; return the number of finished cells.

    Raises:
      SkippedError: if a package or the base model is missing.
      CalledProcessError: if the run fails.
    """
    if absent := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise SkippedError(f"needs {', '.join(absent)}, not installed here")
    home.mkdir(parents=True, exist_ok=True)
    if lce(home, deadline, "fetch", BASE):
        raise SkippedError(f"`lce fetch {BASE}` cannot download the base model here")
    if status := lce(home, deadline, "run", STUDY):
        raise subprocess.CalledProcessError(status, f"lce run {STUDY}")
    return {"cells": len(list(home.glob("artifacts/cell/[!.]*/record.json")))}


def lce(home: Path, deadline: float, *command: str) -> int:
    """Run a command of lce; return its exit code, or 0 if the deadline ends it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lce.cli", *command], env=os.environ | {"LCE_HOME": str(home)}
    )
    try:
        return process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
    return 0


def runs(home: Path) -> list[dict[str, Any]]:
    """Return a row for each training run, finished or not."""
    rows: list[dict[str, Any]] = []
    logs = [*home.glob(f"artifacts/finetune/[!.]*/{LOG}"), *home.glob(f"progress/*/{LOG}")]
    for log in sorted(logs):
        entries = read_entries(log)
        if counted := entries[1:]:
            memory = gib(max(entry["peak_memory_bytes"] for entry in entries))
            row = {"step": log.parent.name, "steps": len(counted), "peak_memory_gib": memory}
            rows.append({**row, **speed_of(counted)})
    return rows


if __name__ == "__main__":
    sys.exit(main())
