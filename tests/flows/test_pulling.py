"""`lce worker` where it computes nothing: what it says, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from flows.pulling import pull_studies
from flows.request import compile_request
from flows.settings import make_execution
from lce_core.errors import NonFiniteError, StudyIncompleteError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.lease import Lease


@pytest.fixture
def how(tmp_path: Path) -> Execution:
    Store(tmp_path / "home").prepare()
    return make_execution({"home": tmp_path / "home", "device": "cpu", "slots": 1})


def test_it_needs_no_prefect() -> None:
    code = "import sys, flows.pulling; raise SystemExit('prefect' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_what_others_hold_can_be_left_to_them(
    how: Execution, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = compile_request("smoke", how).plan.steps.values()
    with ExitStack() as leases:
        for step in steps:
            lease = Lease.acquire(how.home / "leases", step.short)
            assert lease is not None
            leases.enter_context(lease)
        pull_studies(["smoke"], how, waits=False)
    assert "units are left to others; 0 steps computed" in capsys.readouterr().out
    assert not list(how.home.glob("catalog*"))  # whoever computes the rest records it
    assert not (how.home / "logs").exists()  # no worker was started


@pytest.mark.slow
def test_cells_that_failed_before_end_it_as_they_end_a_run(how: Execution) -> None:
    error = NonFiniteError("step 3", "loss nan", "a finite loss", "look")
    for step in compile_request("smoke", how).plan.steps.values():
        Store(how.home).note_failure(step, error, {})
    with pytest.raises(StudyIncompleteError, match="--retry-failed"):
        pull_studies(["smoke"], how)
    assert (how.home / "catalog.duckdb").is_file()
