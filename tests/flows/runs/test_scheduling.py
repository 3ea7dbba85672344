"""The pull loop: order, failures, others that hold work, and GPUs that training waits for.

Units end as the test says; slots, leases and artifacts are real ones.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.runs.scheduling import RunSummary, Scheduler, UnitResult
from flows.settings import make_execution
from lce_core.errors import StepsFailedError, StoreError
from lce_core.store.artifacts import Store
from lce_core.store.lease import Lease
from lce_core.store.steps import Step
from lce_core.study.units import Unit
from tasks.slots import Slot
from tasks.work_queue import Claim
from tasks.workers import Pool
from tests.support.free_steps import free_step, write_file


class Told:
    """What a display was told: the names of steps that ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def finish(self, unit: Unit) -> None:
        self.ended += [step.name for step in unit.steps]

    def refresh(self) -> None:
        """Advance the clock by half a second."""

    def show(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


def a_step(name: str, kind: str = "held_out", **parents: Step) -> Step:
    return free_step(kind, name, {"name": name}, parents, {"benchmark": "passkey"})


def a_unit(*steps: Step) -> Unit:
    return Unit(steps[0].name, steps[0].kind, steps)


class Host:
    """A run over units that last as long as the test says."""

    def __init__(self, home: Path, **execution: Any) -> None:
        self.store, self.told = Store(home), Told()
        self.store.prepare()
        self.how = make_execution({"home": home, "slots": 2, "device": "cpu", **execution})
        self.lasts: dict[str, float] = {}
        self.answers: dict[str, UnitResult] = {}
        self.began: list[str] = []
        self.ended: list[str] = []
        self.slots: dict[str, Slot] = {}
        self.most = 0
        """Units at a time."""

    def run(self, *units: Unit, **how: Any) -> RunSummary:
        steps = [step for unit in units for step in unit.steps]
        seconds = {step.fingerprint: self.lasts.get(step.name, 0.01) for step in steps}
        with Pool(self.how) as pool:
            args = (units, set(), pool, self.told, self.submit, seconds)
            return Scheduler(*args, **how).run()

    def submit(self, claim: Claim, slot: Slot, end: Callable[[UnitResult], None]) -> None:
        self.began.append(claim.unit.name)
        self.slots[claim.unit.name] = slot
        self.most = max(self.most, len(self.began) - len(self.ended))
        threading.Thread(target=self._compute, args=(claim, end)).start()

    def _compute(self, claim: Claim, end: Callable[[UnitResult], None]) -> None:
        unit = claim.unit
        if unit.assists:
            try:
                end(self._assist(unit.steps[0]))
            except OSError as error:  # on a slow machine the step may end first, and its parts go
                end(error)
            return
        time.sleep(sum(self.lasts.get(step.name, 0.01) for step in unit.steps))
        self.ended.append(unit.name)
        if unit.name in self.answers:
            end(self.answers[unit.name])
            return
        computed = {s.fingerprint: self.store.ensure(s, write_file, {}) for s in unit.steps}
        end({"held": [name for name, outcome in computed.items() if outcome is None]})

    def _assist(self, step: Step) -> UnitResult:
        parts = self.store.parts(step)
        for name in parts.free():
            if lease := parts.lease(name):
                with lease:
                    if name not in parts.left():  # on a slow machine another was through with it
                        continue
                    time.sleep(self.lasts.get("part", 0.1))
                    if (result := self.answers.get("part")) is None:
                        parts.write(name, {"done": np.ones(1)})
                return result or {"computed": 1, "held": []}
        return {"computed": 0, "held": [step.fingerprint]}


def in_parts(host: Host, step: Step, *names: str) -> None:
    """Somebody who computes the step asks for its parts."""
    parts = host.store.parts(step)
    parts.open()
    parts.ask({"parts": {name: [] for name in names}})


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def eight_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host of eight GPUs, all of them for one training run."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    monkeypatch.setattr("tasks.gpus.LEASE_FOLDER", tmp_path)
    return Host(tmp_path / "home", slots=None, device="auto", processes=8)


def failed(*steps: Step, kind: str = "data") -> StepsFailedError:
    events = [
        {"fingerprint": step.fingerprint, "class": kind, "error": "E", "message": "m"}
        for step in steps
    ]
    return StepsFailedError(steps[0].name, events)


def test_parents_come_first_and_every_end_is_told(host: Host) -> None:
    parent = a_step("parent")
    child = a_step("child", text=parent)
    tally = host.run(a_unit(child), a_unit(parent), a_unit(a_step("other")))
    assert (tally.failures, tally.blocked, tally.held) == ({}, [], [])
    assert host.began == ["parent", "other", "child"]
    assert sorted(host.told.ended) == ["child", "other", "parent"]


def test_a_failure_stops_what_depends_on_it_alone(host: Host) -> None:
    bad, good = a_step("bad"), a_step("good")
    child = a_step("child", text=bad)
    grandchild = a_step("grandchild", text=child)
    host.answers["bad"] = failed(bad)
    tally = host.run(a_unit(bad, good), a_unit(child), a_unit(grandchild), a_unit(a_step("x")))
    assert tally.failures == {"bad": "data: E: m"}
    assert sorted(tally.blocked) == ["child", "grandchild"]
    assert "x" in host.began
    assert "child" not in host.began


def test_what_cannot_be_is_no_failure(host: Host) -> None:
    step = a_step("none")
    host.answers["none"] = failed(step, kind="unavailable")
    tally = host.run(a_unit(step), a_unit(a_step("child", text=step)))
    assert (tally.failures, tally.blocked) == ({}, [])
    assert host.began == ["none"]


def test_a_full_disk_starts_nothing_more(host: Host) -> None:
    steps = [a_step(name) for name in "abcd"]
    host.answers["a"] = failed(steps[0], kind="disk_full")
    host.lasts["b"] = 0.1
    tally = host.run(*map(a_unit, steps))
    assert tally.disk_full == "m"
    assert host.began == ["a", "b"]


def test_a_disk_that_turns_read_only_between_units_ends_the_run_with_its_name(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(_: object) -> set[str]:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tasks.work_queue.folders_asking", read_only)
    with pytest.raises(StoreError, match=r"LCE_HOME .*: got Read-only file system"):
        host.run(a_unit(a_step("one")), a_unit(a_step("two")))


def test_work_that_others_hold_is_waited_for_last_and_taken_over_when_they_die(host: Host) -> None:
    held = a_step("held")
    lease = Lease.acquire(host.store.home / "leases", held.id)
    assert lease is not None
    rest = [a_step(name) for name in "abc"]
    threading.Timer(0.6, lease.release).start()
    tally = host.run(a_unit(held), *map(a_unit, rest))
    assert tally.failures == {}
    assert host.began == ["a", "b", "c", "held"]


def test_what_others_finish_is_not_begun(host: Host) -> None:
    held = a_step("held")
    child = a_step("child", text=held)

    def finish() -> None:
        with other:
            attempt = host.store.home / "artifacts" / held.folder
            attempt.parent.mkdir(exist_ok=True)
        host.store.ensure(held, write_file, {})

    other = Lease.acquire(host.store.home / "leases", held.id)
    assert other is not None
    threading.Timer(0.1, finish).start()
    host.run(a_unit(held), a_unit(child))
    assert host.began in (["child"], ["held", "child"])  # a moment lay between lease and artifact
    assert sorted(host.told.ended) == ["child", "held"]


def test_a_run_that_does_not_wait_ends_when_others_hold_the_rest(host: Host) -> None:
    held = a_step("held")
    lease = Lease.acquire(host.store.home / "leases", held.id)
    assert lease is not None
    with lease:
        child = a_step("child", text=held)
        tally = host.run(a_unit(held), a_unit(child), a_unit(a_step("a")), waits=False)
    assert host.began == ["a"]
    assert tally.held == ["held", "child"]


def test_eight_gpus_train_one_model_and_evaluate_eight(eight_gpus: Host) -> None:
    tuned = a_step("tuned", "finetune")
    cells = [a_step(f"cell-{n}", "cell", checkpoint=tuned) for n in range(8)]
    eight_gpus.lasts |= {cell.name: 0.3 for cell in cells}
    eight_gpus.run(a_unit(tuned), *map(a_unit, cells))
    assert eight_gpus.most == 8
    assert len(eight_gpus.slots["tuned"].gpus) == 8
    assert sorted(eight_gpus.slots[cell.name].gpus[0] for cell in cells) == list("01234567")


def test_while_training_waits_for_gpus_only_what_ends_before_that_begins(eight_gpus: Host) -> None:
    long, short, late = (a_step(name, "cell") for name in ("long", "short", "late"))
    rows, tuned = a_step("rows", "rows"), a_step("tuned", "finetune", rows=a_step("rows", "rows"))
    eight_gpus.lasts |= {"long": 0.8, "short": 0.1, "late": 5.0, "tuned": 0.01}
    eight_gpus.answers["late"] = {"held": []}
    eight_gpus.lasts["rows"] = 0.2
    gated = [a_step(one.name, "cell", rows=rows) for one in (short, late)]
    eight_gpus.lasts["late"] = 1.5
    eight_gpus.run(*map(a_unit, (long, rows, tuned, *gated)))
    assert eight_gpus.began == ["long", "rows", "short", "tuned", "late"]


def test_the_waiting_grows_while_nothing_changes(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = a_step("held")
    lease = Lease.acquire(host.store.home / "leases", held.id)
    assert lease is not None
    waits = []
    real = Scheduler._wait_for_others

    def noted(run: Any, seconds: float) -> float:
        waits.append(seconds)
        if len(waits) == 4:
            lease.release()
        return real(run, seconds)

    monkeypatch.setattr(Scheduler, "_wait_for_others", noted)
    host.run(a_unit(held))
    assert waits[:4] == sorted(set(waits[:4]))
    assert host.began == ["held"]


def test_slots_with_nothing_else_to_do_compute_parts_of_what_runs(host: Host) -> None:
    long, other = a_step("long", "cell"), a_step("other", "cell")
    in_parts(host, long, "a", "b", "c")
    host.lasts |= {"long": 0.8, "other": 0.1}
    tally = host.run(a_unit(long), a_unit(other))
    assert (tally.failures, tally.held) == ({}, [])
    assert host.began[:3] == ["long", "other", "long, helper 1"]
    assert host.store.parts(long).free() == []
    assert host.slots["long, helper 1"] != host.slots["long"]
    assert sorted(host.told.ended) == ["long", "other"]


def test_no_more_slots_compute_parts_than_there_are_parts(host: Host) -> None:
    host.how = host.how.model_copy(update={"slots": 5})
    long = a_step("long", "cell")
    in_parts(host, long, "a", "b", "c")
    host.lasts |= {"long": 0.8, "part": 0.3}
    lease = host.store.parts(long).lease("c")
    assert lease is not None
    with lease:
        host.run(a_unit(long))
    assert sorted(host.began) == ["long", "long, helper 1", "long, helper 2"]


def test_two_steps_of_a_unit_are_assisted_at_once(host: Host) -> None:
    host.how = host.how.model_copy(update={"slots": 3})
    one, two = a_step("one", "cell"), a_step("two", "cell")
    in_parts(host, one, "a")
    in_parts(host, two, "b")
    host.lasts |= {"one": 0.6, "part": 0.3}
    host.run(a_unit(one, two))
    assert host.began == ["one", "one, helper 1", "one, helper 2"]
    assert host.store.parts(one).free() == host.store.parts(two).free() == []


def test_parts_of_what_others_compute_are_computed_while_it_is_waited_for(host: Host) -> None:
    held = a_step("held", "cell")
    in_parts(host, held, "a")
    lease = Lease.acquire(host.store.home / "leases", held.id)
    assert lease is not None
    threading.Timer(0.6, lease.release).start()
    host.run(a_unit(held))
    assert host.began == ["held, helper 1", "held"]


@pytest.mark.parametrize("result", [failed(a_step("long", "cell")), {"computed": 0, "held": []}])
def test_who_cannot_compute_parts_fails_nothing_and_is_not_asked_at_once_again(
    host: Host, result: UnitResult
) -> None:
    long = a_step("long", "cell")
    in_parts(host, long, "a")
    host.lasts |= {"long": 0.5, "part": 0.01}
    host.answers["part"] = result
    assert host.run(a_unit(long)).failures == {}
    assert host.began == ["long", "long, helper 1"]


def test_gpus_that_training_waits_for_compute_no_parts(eight_gpus: Host) -> None:
    long, rows = a_step("long", "cell"), a_step("rows", "rows")
    tuned = a_step("tuned", "finetune", rows=rows)
    threading.Timer(0.2, in_parts, (eight_gpus, long, "a")).start()
    eight_gpus.lasts |= {"long": 0.6, "rows": 0.01, "tuned": 0.01}
    eight_gpus.run(a_unit(long), a_unit(rows), a_unit(tuned))
    assert eight_gpus.began == ["long", "rows", "tuned"]
