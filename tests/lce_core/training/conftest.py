import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lce_core.training.job import TrainingJob
from tests.support.repository import ROOT
from tests.support.training_jobs import job_maker, packed_rows, save_base


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    return packed_rows(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def saved_base(tmp_path_factory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture
def make_job(rows, tmp_path) -> Any:
    return job_maker(rows, tmp_path)


def start(job: TrainingJob) -> subprocess.Popen[bytes]:
    """Start the run in a process of its own, which a test can kill."""
    script = (
        "import sys; from lce_core.training.run import TrainingJob, run;"
        "from lce_core.study.plugin_folders import add_plugin_folders;"
        "job = TrainingJob.model_validate_json(sys.argv[1]);"
        "add_plugin_folders(job.plugin_folders); run(job, lambda row: None)"
    )
    command = [sys.executable, "-c", script, job.model_dump_json()]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)


@pytest.fixture
def every_second(monkeypatch) -> None:
    """Lets each look at the clock find one more second gone, so that every step reports."""
    clock = count(0.0, 1.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
