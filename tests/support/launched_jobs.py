"""Several training jobs in one launch: to start processes takes longer than to train the toy."""

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lce_core.progress import Report
from lce_core.training import launching
from lce_core.training import run as training
from lce_core.training.job import TrainingJob
from tests.support.repository import ROOT
from tests.support.training_jobs import silent


def run_together(jobs: Sequence[TrainingJob], scratch: Path) -> list[dict[str, Any]]:
    """Run jobs with equal numbers of processes, one after another in the same processes."""
    (machines,) = {job.machines for job in jobs}
    payload = json.dumps([job.model_dump(mode="json") for job in jobs])
    with contextlib.chdir(ROOT):
        facts = launching.launch("tests.support.launched_jobs", payload, machines, silent, scratch)
    found: list[dict[str, Any]] = facts["of_jobs"]
    return found


def _work(payload: str, report: Report) -> dict[str, Any]:
    jobs = json.loads(payload)
    return {"of_jobs": [training._work(json.dumps(job), report) for job in jobs]}


if __name__ == "__main__":
    launching.work(Path(sys.argv[1]), _work)
