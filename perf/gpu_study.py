"""Run the study smollm2-tuned until a time limit; report finished cells and training speed.

The base model is downloaded first, unless the home has it. At the time limit the run receives
SIGINT; the script then reads the finished results from the store.

    python perf/gpu_study.py --home FOLDER --seconds 120 --rows FILE.jsonl
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu_common import add_row, speed_of

from lce_core.training.loss_log import LOG, read_entries

STUDY, BASE = "smollm2-tuned", "smollm2_135m_q4"
_STOP_SECONDS = 20.0


def main() -> int:
    """Append rows about the training runs and the number of cells; return the run's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    options = parser.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.seconds
    environment = os.environ | {"LCE_HOME": str(options.home)}
    lce = [sys.executable, "-m", "lce.cli"]
    status = 0
    for command in (["fetch", BASE], ["run", STUDY]):
        process = subprocess.Popen([*lce, *command], env=environment)
        try:
            status = process.wait(max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            status = 0  # the time limit is no failure
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            break
        if status:
            break
    for row in found(options.home):
        add_row(options.rows, row)
    return status


def found(home: Path) -> list[dict[str, Any]]:
    """Return a row for each training run, finished or not, and one with the number of cells."""
    rows: list[dict[str, Any]] = []
    logs = [*home.glob(f"artifacts/finetune/[!.]*/{LOG}"), *home.glob(f"progress/*/{LOG}")]
    for log in sorted(logs):
        entries = read_entries(log)
        if entries:
            row = {"what": "study", "step": log.parent.name, "steps": len(entries)}
            rows.append({**row, **speed_of(entries, warm_up=1)})
    cells = len(list(home.glob("artifacts/cell/[!.]*/record.json")))
    return [*rows, {"what": "study", "cells": cells}]


if __name__ == "__main__":
    sys.exit(main())
