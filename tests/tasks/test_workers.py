"""Workers: what survives whom after kill -9, what they report, and which GPUs they get."""

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flows.runs.scheduling import Stop
from flows.settings import make_execution
from lce_core.errors import SpecError, WorkerLostError
from lce_core.execution import Execution
from lce_core.store.steps import Step
from lce_core.study.plan import compile_study
from lce_core.study.study_file import load_study
from tasks.machines import leased_gpus, visible_gpus
from tasks.ray_engine import cluster
from tasks.slots import Slot
from tasks.worker_process import Event, WorkerProcess, _environment
from tasks.workers import Pool
from tests.support.free_steps import free_step
from tests.support.processes import MARK, new_marker, survivors
from tests.support.studies import library_text, wait_until, write_study

SLEEPER = "import time; time.sleep(600)"
COMMAND = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "{SLEEPER}"], start_new_session=True)
time.sleep(600)
"""
DRIVER = """
import subprocess, sys, time
child = subprocess.Popen(
    [sys.executable, "-m", "tasks.supervisor", sys.executable, "-c", sys.argv[1]],
    stdin=subprocess.PIPE)
time.sleep(600)
"""


def lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def children() -> set[psutil.Process]:
    return {child for child in psutil.Process().children(recursive=True) if lives(child)}


@pytest.fixture
def execution(tmp_path) -> Execution:
    library_text(tmp_path / "text")
    given = {"home": tmp_path, "slots": 1, "device": "cpu"}
    return make_execution({**given, "data_folders": {"text": tmp_path / "text"}})


def a_step(kind: str, execution: Execution, folder: Path) -> Step:
    plan = compile_study(load_study(Path(write_study(folder))), execution.data_folders)
    return next(step for step in plan.steps.values() if step.kind == kind)


def taken(pool: Pool, kind: str) -> Slot:
    slot = pool.claim(kind)
    assert slot is not None
    return slot


@contextlib.contextmanager
def family() -> Iterator[tuple[str, dict[str, psutil.Process]]]:
    marker = new_marker()
    driver = psutil.Popen([sys.executable, "-c", DRIVER, COMMAND], env={**os.environ, MARK: marker})
    try:
        # The command's child comes last.
        wait_until(lambda: any(SLEEPER in process.cmdline() for process in survivors(marker)))
        (supervisor,) = driver.children()
        line = [supervisor]
        while line[-1].cmdline()[1:] != ["-c", COMMAND]:
            line += line[-1].children()
        *_, guard, command = line
        roles = {"driver": driver, "supervisor": supervisor, "guard": guard, "command": command}
        yield marker, roles
    finally:
        driver.kill()
        driver.wait()
        for process in survivors(marker):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.mark.parametrize("victim", ["driver", "supervisor", "guard", "command"])
def test_kill_9_leaves_no_descendant_even_in_sessions_of_their_own(victim):
    with family() as (marker, roles):
        roles[victim].kill()
        wait_until(lambda: set(survivors(marker)) <= {roles["driver"]})


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child with its parent")
def test_a_command_dies_with_supervisor_and_guard_killed_in_one_moment():
    with family() as (_, roles):
        for role in ("supervisor", "guard"):
            roles[role].suspend()  # neither sees the other one die
        for role in ("supervisor", "guard"):
            roles[role].kill()
        wait_until(lambda: not lives(roles["command"]))


def test_a_command_that_is_asked_to_end_ends_in_its_own_way_and_with_its_status():
    said = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(5)); print(flush=True)"
    with subprocess.Popen(
        [sys.executable, "-m", "tasks.supervisor", sys.executable, "-c", f"{said}; time.sleep(99)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as supervisor:
        assert supervisor.stdout is not None
        supervisor.stdout.readline()
        supervisor.terminate()
        assert supervisor.wait() == 5


@pytest.mark.slow
def test_a_worker_computes_names_failures_and_is_replaced_when_it_dies(
    execution, tmp_path, monkeypatch
):
    for name in ("tasks", "lce_core", "json"):  # workers run this code, whatever lies there
        (tmp_path / f"{name}.py").write_text("raise SystemExit('another')")
    monkeypatch.chdir(tmp_path)
    others = children()  # of tests before this one
    pool, events = Pool(execution).open(), []
    step, orphan = (a_step(kind, execution, tmp_path) for kind in ("held_out", "cell"))
    slot = taken(pool, step.kind)
    try:
        failed, done = pool.run(slot, [orphan, step], events.append)
        assert (failed["status"], failed["error"]) == ("failed", "StoreError")
        assert "got no undamaged" in failed["message"]
        assert done["status"] == "computed"
        assert pool.run(slot, [step], events.append)[0]["status"] == "existing"
        killed = children() - others
        for process in killed:
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends with its guard
                process.kill()
        wait_until(lambda: not any(map(lives, killed)))
        # The last of its threads may still hold the pipe when its process is gone from the list.
        said = r"(process that has died|1 of 1 steps not done).* read .*worker-.*log"
        with pytest.raises(WorkerLostError, match=said):
            pool.run(slot, [step], events.append)
        assert pool.run(slot, [step], events.append)[0]["status"] == "existing"
    finally:
        pool.close()
    assert not children() - others


def test_gpus_are_those_the_environment_names_leased_by_hardware_id(tmp_path, monkeypatch):
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\necho '0, GPU-aaa'; echo '1, GPU-bbb'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == {"0": "GPU-aaa", "1": "GPU-bbb"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert visible_gpus() == {"1": "GPU-bbb"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 5")
    assert list(visible_gpus()) == ["2", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert visible_gpus() == {}


def test_runs_on_one_host_never_share_a_gpu_nor_wait_for_each_others(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4")
    monkeypatch.setattr("tasks.machines.LEASE_FOLDER", tmp_path)
    with leased_gpus(least=2, most=2) as first, leased_gpus(least=1, most=8) as second:
        assert len(first) == 2
        assert sorted(first + second) == ["0", "1", "2", "3", "4"]
    with leased_gpus(least=2, most=8) as all_of_them:
        assert len(all_of_them) == 5  # the fifth evaluates
    with leased_gpus(least=2, most=2), leased_gpus(least=2, most=2) as two_of_three:
        assert len(two_of_three) == 2
        with leased_gpus(least=1, most=8) as spare:  # waits for ever if the third is kept
            assert len(spare) == 1
    with pytest.raises(SpecError, match="expected at least 6, one"), leased_gpus(least=6, most=6):
        pass


def test_gpus_that_others_use_are_waited_for_until_the_run_has_to_end(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr("tasks.machines.LEASE_FOLDER", tmp_path)
    monkeypatch.setattr("tasks.machines.WAIT_SECONDS", 30.0)
    stop = Stop()
    threading.Timer(0.3, stop.set).start()
    with leased_gpus(1, 1), pytest.raises(KeyboardInterrupt), leased_gpus(1, 1, stop.wait):
        pytest.fail("there is no second GPU")


SLOT = Slot((0,))
STEP = free_step("rows", "toy", {}, {})
DONE = json.dumps({"event": "step", "fingerprint": STEP.fingerprint, "status": "computed"})


def test_the_steps_that_a_worker_reported_before_it_died_are_done_and_others_are_lost(tmp_path):
    execution = make_execution({"home": tmp_path, "device": "cpu", "slots": 1})
    with Pool(execution).open() as pool:

        def run(said: str) -> list[Event]:
            worker = WorkerProcess(SLOT, pool.execution)
            worker._process.kill()
            worker._requests.close()
            worker._events.close()
            # As if what is asked of it had gone into the pipe before it died.
            worker._requests, worker._events = io.StringIO(), io.StringIO(said)
            pool._workers[SLOT.places] = worker
            try:
                return pool.run(SLOT, [STEP], lambda event: None)
            finally:
                assert worker.has_died
                assert pool._workers == {}

        (ended,) = run(DONE + "\n")
        assert ended["status"] == "computed"
        with pytest.raises(WorkerLostError, match="1 of 1 steps not done") as lost:
            run(DONE[:40])  # it died while it wrote
        assert lost.value.fingerprint == STEP.fingerprint


def test_workers_use_expandable_segments_unless_the_user_sets_the_allocator(tmp_path, monkeypatch):
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    expected = {names[0]: "expandable_segments:True"}
    execution = Execution(home=tmp_path)
    assert _environment(SLOT, execution, ()).items() >= expected.items()
    assert cluster.environment()["env_vars"].items() >= expected.items()
    monkeypatch.setenv(names[1], "max_split_size_mb:512")
    assert names[0] not in _environment(SLOT, execution, ())
