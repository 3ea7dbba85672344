"""The store against real processes and damage: killed writers, rivals, bit flips, full disks."""

import dataclasses
import errno
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch

from lce_core.errors import LeaseLostError, NonFiniteError, SpecError
from lce_core.store.artifacts import Attempt, Store
from lce_core.store.failures import RETRIED, classify
from lce_core.store.file_facts import sha256_of
from lce_core.store.garbage import sweep
from lce_core.store.lease import HEARTBEAT_SECONDS, STALE_SECONDS, Lease, holders, is_held
from lce_core.store.records import environment, write_json
from lce_core.store.steps import Step
from tests.support.file_events import opened
from tests.support.free_steps import free_step

CHILD = """
import sys, time
from pathlib import Path
from lce_core.store.artifacts import Store
from tests.support.free_steps import free_step
home, delay, note = Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
def run(attempt):
    (attempt.out / "a.txt").write_text("half")
    note.open("a").write("ran\\n")
    time.sleep(delay)
    (attempt.out / "a.txt").write_text("whole")
    return {}
while (outcome := Store(home).ensure(free_step("cell", "x", {"n": 1}, {}), run, {})) == "held":
    time.sleep(0.1)
print(outcome)
"""


def a_step(n: int = 1) -> Step:
    return free_step("cell", "x", {"n": n}, {})


def write(attempt: Attempt, text: str = "whole") -> dict[str, object]:
    (attempt.out / "a.txt").write_text(text)
    return {"text": text}


def refusing(number: int, text: str) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, text)

    return refuse


def child(store: Store, delay: float, note: Path) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", CHILD, str(store.home), str(delay), str(note)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 200  # only so that a test that fails ends
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_text("whale"),
        lambda file: file.write_text(""),
        lambda file: file.unlink(),
        lambda file: file.with_name("record.json").write_text("{"),
        lambda file: shutil.rmtree(file.parent),
    ],
    ids=["flip", "truncate", "delete", "record", "folder"],
)
def test_damage_is_noticed_and_the_step_done_again(store, damage):
    store.ensure(a_step(), write, {})
    file = store.path(a_step()) / "a.txt"
    damage(file)
    fresh = Store(store.home)
    assert fresh.record(a_step()) is None
    assert fresh.ensure(a_step(), write, {}) == "computed"
    assert file.read_text() == "whole"
    assert fresh.record(a_step()) is not None


def test_no_file_is_hashed_twice_by_a_store_or_its_steps(store, tmp_path, monkeypatch):
    monkeypatch.setattr("lce_core.store.file_facts.TICK_SECONDS", -1e9)
    data = tmp_path / "data"
    data.write_text("one")
    asked: list[str] = []

    def ask(attempt: Attempt) -> dict[str, object]:
        asked.extend(sha256_of(data) for _ in range(2))
        return write(attempt)

    with opened(data) as seen:
        store.ensure(a_step(), ask, {})
        Store(store.home).ensure(a_step(2), ask, {})
    assert set(asked) == {hashlib.sha256(b"one").hexdigest()}
    assert len(seen) == 1
    assert store.record(a_step())
    store.file_facts.save()
    with opened(store.path(a_step()) / "a.txt") as seen:
        assert Store(store.home).record(a_step())
    assert seen == []


def test_a_step_in_another_name_is_found_in_a_listing_and_without(store):
    store.ensure(a_step(), write, {})
    renamed, listing = dataclasses.replace(a_step(), name="renamed"), store.listing()
    assert store.path(renamed) == store.path(renamed, listing) == store.path(a_step())
    assert store.record(renamed, listing) == store.record(a_step())
    assert store.find(a_step(2).fingerprint) is None
    assert listing.find(a_step(2).fingerprint, "cell") is None
    assert listing.find(a_step().fingerprint, "rows") is None


def test_a_failed_attempt_leaves_a_note_and_nothing_else(store):
    store.ensure(a_step(2), write, {})
    kept = store.record(a_step(2))

    def fail(attempt: Attempt) -> dict[str, object]:
        write(attempt, "half")
        raise NonFiniteError("step 3", "loss nan", "a finite loss", "look")

    for attempts in (1, 2):
        with pytest.raises(NonFiniteError):
            store.ensure(a_step(), fail, {})
        failure = store.failures.of(a_step())
        assert failure is not None
        assert (failure["class"], failure["attempts"]) == ("non_finite", attempts)
    assert store.failures.attempts() == {a_step().id: 2}
    assert store.record(a_step()) is None
    assert list(store.path(a_step()).parent.iterdir()) == [store.path(a_step(2))]
    assert kept is not None
    assert store.record(a_step(2)) == kept
    store.ensure(a_step(), write, {})
    assert store.record(a_step()).attempts == 3
    assert store.failures.of(a_step()) is None


def test_a_disk_without_space_that_lce_may_write_to_is_not_tried_again():
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        error = OSError(number, os.strerror(number))
        assert classify(error) == "disk_full"
        # Libraries wrap it in errors of their own.
        assert classify(RuntimeError(f"writing a file: {error}")) == "disk_full"
    assert "disk_full" not in RETRIED


def test_a_step_is_left_to_the_process_that_computes_it_and_taken_over_once_that_is_killed(
    store, tmp_path
):
    note, attempts = tmp_path / "note", store.home / "artifacts" / "cell"
    other = attempts / f".attempt-{a_step(2).id}-12345678"
    other.mkdir(parents=True)
    writer = child(store, 120.0, note)
    wait_for(note.exists)
    own = [path for path in attempts.glob(".attempt*") if path != other]
    assert len(own) == 1
    assert store.ensure(a_step(), lambda _: pytest.fail("twice"), {}) == "held"
    assert set(holders(store.home / "leases")) == {a_step().id}
    assert sweep(store) == [other.name]  # the writer's is not ours to remove
    assert own[0].is_dir()
    other.mkdir()
    writer.kill()
    writer.communicate()
    assert holders(store.home / "leases") == {}
    assert store.record(a_step()) is None
    assert store.ensure(a_step(), write, {}) == "computed"
    assert list(attempts.glob(".attempt*")) == [other]  # another step's is its next owner's
    assert store.ensure(a_step(), lambda _: pytest.fail("twice"), {}) == "existing"


def test_progress_of_a_finished_step_alone_is_swept(store):
    for step in (a_step(), a_step(2)):
        store.ensure(step, write, {})
    (store.path(a_step(2)) / "a.txt").write_text("other")  # it will be computed again
    for short in (a_step().id, a_step(2).id, "0" * 12):
        (store.home / "progress" / short).mkdir()
    sweep(store)
    left = {path.name for path in (store.home / "progress").iterdir()}
    assert left == {a_step(2).id, "0" * 12}


def test_homes_are_prepared_at_once_by_processes_of_one_pid(store, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in containers that share a store
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(store.prepare) for _ in range(200)]:
            done.result()
    assert list((store.home / "cache").iterdir()) == []


def test_a_lease_that_could_not_be_given_back_is_nobodys(tmp_path, monkeypatch):
    lease = Lease.acquire(tmp_path, "s")
    assert lease is not None
    assert is_held(tmp_path, "s")
    with monkeypatch.context() as broken:
        broken.setattr("lce_core.store.lease.locked", refusing(errno.ENOLCK, "no locks"))
        with pytest.raises(OSError, match="no locks"):
            lease.release()
    assert (tmp_path / "s.json").exists()
    assert not is_held(tmp_path, "s")
    assert Lease.acquire(tmp_path, "s") is not None


def test_a_lease_whose_heartbeat_cannot_start_is_given_back(tmp_path, monkeypatch):
    lease = Lease.acquire(tmp_path, "s")
    assert lease is not None
    monkeypatch.setattr(threading.Thread, "start", refusing(errno.EAGAIN, "no more threads"))
    with pytest.raises(OSError, match="no more threads"), lease:
        pytest.fail("it has no heartbeat")
    assert not (tmp_path / "s.json").exists()


def test_a_disk_that_is_full_keeps_no_half_files(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "replace", refusing(errno.ENOSPC, "full"))
    with pytest.raises(OSError, match="full"):
        write_json(tmp_path / "a.json", {})
    with pytest.raises(OSError, match="full"):
        Lease.acquire(tmp_path, "s")
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_lease_that_another_host_removes_while_it_is_read_is_free(tmp_path, monkeypatch):
    (tmp_path / "s.json").write_text("{}")
    refuse = refusing(errno.ESTALE, "stale file handle")
    monkeypatch.setattr("lce_core.store.lease.read_mapping", refuse)
    assert not is_held(tmp_path, "s")


def test_a_heartbeat_survives_a_file_server_that_hiccups(tmp_path, monkeypatch):
    monkeypatch.setattr("lce_core.store.lease.HEARTBEAT_SECONDS", 0.05)
    with Lease.acquire(tmp_path, "s") or pytest.fail("free"):
        path = tmp_path / "s.json"
        content = path.read_text()
        path.unlink()
        path.mkdir()
        time.sleep(0.2)
        path.rmdir()
        path.write_text(content)
        os.utime(path, (1, 1))
        wait_for(lambda: path.stat().st_mtime > 1)


def test_a_lost_lease_is_fatal_to_the_attempt(store):
    def robbed(attempt: Attempt) -> dict[str, object]:
        lease = next((store.home / "leases").glob("*.json"))
        lease.write_text(json.dumps({**json.loads(lease.read_text()), "token": "another"}))
        return write(attempt)

    with pytest.raises(LeaseLostError):
        store.ensure(a_step(), robbed, {})
    assert store.record(a_step()) is None


def test_leases_of_the_dead_and_of_silent_hosts_are_stale(tmp_path):
    with Lease.acquire(tmp_path, "s") or pytest.fail("free"):
        assert Lease.acquire(tmp_path, "s") is None
        content = json.loads((tmp_path / "s.json").read_text())
    earlier = {"started": content["started"] - 50}
    for change, age, free in [
        (earlier, 0, True),  # the pid was given to another process
        ({"boot": "earlier"}, 0, False),  # another boot or host: its heartbeat decides
        ({"boot": "earlier"}, 3600, True),
        ({"pid_namespace": 1, **earlier}, 0, False),  # a container: its pids are others here
        ({"pid_namespace": 1}, 3600, True),
        ({"host": "elsewhere"}, 0, False),
        ({"host": "elsewhere"}, 3600, True),
    ]:
        path = tmp_path / "s.json"
        path.write_text(json.dumps({**content, **change}))
        os.utime(path, (time.time() - age, time.time() - age))
        lease = Lease.acquire(tmp_path, "s")
        assert (lease is not None) == free, change
        path.unlink()


@pytest.mark.parametrize(("silent", "alive"), [(60, True), (80, True), (91, False)])
@pytest.mark.parametrize("clock_is_off_by", [-3600, 3600])
def test_another_hosts_lease_lives_for_90_silent_seconds_of_the_file_systems_clock(
    tmp_path, monkeypatch, silent, alive, clock_is_off_by
):
    path, clock = tmp_path / "s.json", tmp_path / "clock"
    path.write_text(json.dumps({"host": "elsewhere", "pid": 1, "token": "t"}))
    clock.touch()
    beat = clock.stat().st_mtime - silent
    os.utime(path, (beat, beat))
    ours = time.time
    monkeypatch.setattr(time, "time", lambda: ours() + clock_is_off_by)
    assert is_held(tmp_path, "s") == alive
    assert (Lease.acquire(tmp_path, "s") is None) == alive


def test_a_live_owner_may_miss_two_heartbeats():
    assert 3 * HEARTBEAT_SECONDS < STALE_SECONDS


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_clock_that_is_set_takes_no_lease_from_a_live_process(tmp_path, monkeypatch, seconds):
    with Lease.acquire(tmp_path, "step") or pytest.fail("nobody holds it"):
        # What the system says of its start moves with the clock, and with it all starts by it.
        booted, started = psutil.boot_time(), psutil.Process().create_time()
        monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: booted + seconds)
        assert psutil.Process().create_time() - started == pytest.approx(seconds, abs=60)
        assert is_held(tmp_path, "step")
        assert Lease.acquire(tmp_path, "step") is None


def test_who_may_only_read_a_store_sees_who_computes_in_it(tmp_path, monkeypatch):
    """Root may write anywhere, so the system's refusal is said in its place."""
    with Lease.acquire(tmp_path, "step") or pytest.fail("nobody holds it"):
        with monkeypatch.context() as patched:
            patched.setattr(Path, "touch", refusing(errno.EACCES, "Permission denied"))
            assert is_held(tmp_path, "step")
            assert set(holders(tmp_path)) == {"step"}
        for number, text in ((errno.EIO, "Input/output"), (errno.EROFS, "Read-only")):
            with monkeypatch.context() as patched:
                patched.setattr(Path, "touch", refusing(number, text))
                with pytest.raises(OSError, match=text):
                    holders(tmp_path)


def test_a_live_lease_of_another_pid_namespace_is_not_taken_over(tmp_path):
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"]).returncode:
        pytest.skip("no PID namespaces here")
    holder = (
        "import sys, os; from pathlib import Path; from lce_core.store.lease import Lease\n"
        "with Lease.acquire(Path(sys.argv[1]), 's'): print(os.getpid(), flush=True); input()"
    )
    command = [*apart, "--kill-child", sys.executable, "-c", holder, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        own = int(process.stdout.readline())
        content = json.loads((tmp_path / "s.json").read_text())
        assert content["pid"] == own < 10  # a pid that means something else here
        assert content["host"] == socket.gethostname()
        assert Lease.acquire(tmp_path, "s") is None
        process.communicate("\n")
    with Lease.acquire(tmp_path, "s") or pytest.fail("released"):
        pass


def test_a_home_that_cannot_be_written_is_a_clear_error(tmp_path):
    occupied = tmp_path / "file"
    occupied.write_text("")
    with pytest.raises(SpecError, match="set LCE_HOME to a writable folder"):
        Store(occupied / "home").prepare()


def test_it_names_the_instructions_of_torch_once_torch_is_loaded(monkeypatch):
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch")
        assert environment()["instructions"] is None
    assert environment()["instructions"] == torch.backends.cpu.get_cpu_capability()
