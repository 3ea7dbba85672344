"""`lce worker` where it computes nothing: what it says, and how it ends."""

import errno
import io
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from rich.console import Console

from flows.pulling import LogLines, pull_studies
from flows.request import compile_request
from flows.run_context import RunContext
from flows.runs.scheduling import Stop, UnitResult
from flows.settings import make_execution
from flows.work import RunOptions, preflight
from lce_core.errors import NonFiniteError, StudyIncompleteError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.lease import Lease
from tasks.slots import Slot
from tasks.work_queue import Claim


@pytest.fixture
def how(tmp_path) -> Execution:
    Store(tmp_path / "home").prepare()
    return make_execution({"home": tmp_path / "home", "device": "cpu", "slots": 1})


def test_a_worker_that_writes_no_catalog_loads_neither_prefect_nor_duckdb_nor_mlflow(tmp_path):
    code = f"""
import sys, flows.pulling
from flows.settings import make_execution
how = make_execution(dict(home={str(tmp_path)!r}, device="cpu", slots=1))
flows.pulling.RunContext(flows.pulling.preflight(["smoke"], how, flows.pulling.RunOptions()))
print({{"prefect", "duckdb", "mlflow"}} & set(sys.modules))"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("set()\n", "")


def test_what_others_hold_can_be_left_to_them(how, capsys):
    steps = compile_request("smoke", how).plan.steps.values()
    with ExitStack() as leases:
        for step in steps:
            lease = Lease.acquire(how.home / "leases", step.id)
            assert lease is not None
            leases.enter_context(lease)
        pull_studies(["smoke"], how, RunOptions(), waits=False)
    assert "units are left to other workers; 0 steps computed" in capsys.readouterr().out
    assert not list(how.home.glob("catalog*"))  # whoever computes the rest records it
    # No worker was started.
    assert [log.name for log in (how.home / "logs").iterdir()] == ["live-results.log"]


@pytest.mark.slow
def test_cells_that_failed_before_end_it_as_they_end_a_run(how):
    error = NonFiniteError("step 3", "loss nan", "a finite loss", "look")
    for step in compile_request("smoke", how).plan.steps.values():
        Store(how.home).failures.add(step, error, {})
    with pytest.raises(StudyIncompleteError, match="--retry-failed"):
        pull_studies(["smoke"], how, RunOptions())
    assert (how.home / "catalog.duckdb").is_file()


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", text)


def test_a_log_that_cannot_be_written_keeps_no_slot(how):
    run = RunContext(preflight(["smoke"], how, RunOptions()))
    lines, unit, ends = LogLines(Console(file=Full()), run.progress), run.units[0], []

    def submit(taken: Claim, slot: Slot, end: Callable[[UnitResult], None]) -> None:
        end({"computed": 1, "existing": 0, "held": []})

    lines.logged(submit, Stop())(Claim(unit, shared=False), Slot((0,)), ends.append)
    assert len(ends) == 1


def test_a_signal_that_comes_while_its_flag_is_waited_for_ends_the_waiting():
    stop = Stop()
    before = signal.signal(signal.SIGALRM, lambda *_: stop.set())
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        assert stop.wait(60)  # protects from hanging
    finally:
        signal.signal(signal.SIGALRM, before)
    assert stop.is_over
    assert not Stop().wait(0.05)
