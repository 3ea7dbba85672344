"""The pull loop over units that end as a test says; slots, leases and artifacts are real."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.runs.scheduling import Display, RunSummary, Scheduler, UnitResult
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
from tests.support.studies import wait_until


class Told(Display):
    def __init__(self) -> None:
        self.ended: list[str] = []
        self.failures: list[str] = []

    def finish(self, *units: Unit, failure: str = "") -> None:
        self.ended += [step.name for unit in units for step in unit.steps]
        self.failures += [failure] * bool(failure)


def a_step(name: str, kind: str = "held_out", **parents: Step) -> Step:
    return free_step(kind, name, {"name": name}, parents, {"benchmark": "passkey"})


def a_unit(*steps: Step) -> Unit:
    return Unit(steps[0].name, steps[0].kind, steps)


class Host:
    """A run over units of which each ends when the test says; no test waits for a clock."""

    def __init__(self, home: Path, **execution: Any) -> None:
        self.store, self.told = Store(home), Told()
        self.store.prepare()
        self.how = make_execution({"home": home, "slots": 2, "device": "cpu", **execution})
        self.predicted: dict[str, float] = {}
        self.until: dict[str, Callable[[], bool]] = {}
        """What a unit waits for before it ends."""
        self.last: dict[str, Callable[[], object]] = {}
        """What is done before the scheduler hears of a unit's end."""
        self.answers: dict[str, UnitResult] = {}
        self.began: list[str] = []
        self.ended: list[str] = []
        """Units of whose end the scheduler has been told."""
        self.slots: dict[str, Slot] = {}

    def run(self, *units: Unit, **how: Any) -> RunSummary:
        steps = [step for unit in units for step in unit.steps]
        seconds = {step.fingerprint: self.predicted.get(step.name, 1.0) for step in steps}
        with Pool(self.how) as pool:
            args = (units, set(), pool, self.told, self.submit, seconds)
            return Scheduler(*args, **how).run()

    def submit(self, claim: Claim, slot: Slot, end: Callable[[UnitResult], None]) -> None:
        self.began.append(claim.unit.name)
        self.slots[claim.unit.name] = slot
        threading.Thread(target=self._compute, args=(claim.unit, end)).start()

    def _compute(self, unit: Unit, end: Callable[[UnitResult], None]) -> None:
        result = self._assist(unit) if unit.assists else self._evaluate(unit)
        self.last.get(unit.name, lambda: None)()
        end(result)
        self.ended.append(unit.name)

    def _evaluate(self, unit: Unit) -> UnitResult:
        wait_until(self.until.get(unit.name, lambda: True))
        if unit.name in self.answers:
            return self.answers[unit.name]
        computed = {s.fingerprint: self.store.ensure(s, write_file, {}) for s in unit.steps}
        return {"held": [name for name, outcome in computed.items() if outcome == "held"]}

    def _assist(self, unit: Unit) -> UnitResult:
        (step,) = unit.steps
        parts = self.store.parts(step)
        for name in parts.free():
            if lease := parts.lease(name):
                with lease:
                    wait_until(self.until.get(unit.name, lambda: True))
                    if (result := self.answers.get("part")) is None:
                        parts.write(name, {"done": np.ones(1)})
                return result or {"computed": 1, "held": []}
        return {"computed": 0, "held": [step.fingerprint]}


def leased(host: Host, step: Step) -> Lease:
    lease = Lease.acquire(host.store.home / "leases", step.id)
    assert lease is not None
    return lease


def in_parts(host: Host, step: Step, *names: str) -> None:
    parts = host.store.parts(step)
    parts.open()
    parts.ask({"parts": {name: [] for name in names}})


@pytest.fixture
def host(tmp_path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def eight_gpus(tmp_path, monkeypatch) -> Host:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    monkeypatch.setattr("tasks.machines.LEASE_FOLDER", tmp_path)
    return Host(tmp_path / "home", slots=None, device="auto", processes=8)


def failed(*steps: Step, kind: str = "data") -> StepsFailedError:
    events = [
        {"fingerprint": step.fingerprint, "class": kind, "error": "E", "message": "m"}
        for step in steps
    ]
    return StepsFailedError(steps[0].name, events)


def test_parents_come_first_and_every_end_is_told(host):
    parent = a_step("parent")
    child = a_step("child", text=parent)
    tally = host.run(a_unit(child), a_unit(parent), a_unit(a_step("other")))
    assert (tally.failures, tally.abandoned, tally.held) == ({}, [], [])
    assert host.began == ["parent", "other", "child"]
    assert sorted(host.told.ended) == ["child", "other", "parent"]


def test_a_failure_stops_what_depends_on_it_and_what_only_that_reads(host):
    bad, good, rows, shared = map(a_step, ("bad", "good", "rows", "shared"))
    child = a_step("child", text=bad, rows=rows, shared=shared)
    grandchild = a_step("grandchild", text=child)
    other = a_step("other", shared=shared)
    host.answers["bad"] = failed(bad)
    host.until["x"] = lambda: "bad" in host.ended  # occupies the other slot until then
    units = (a_unit(bad, good), *map(a_unit, (a_step("x"), rows, child, grandchild, shared, other)))
    tally = host.run(*units)
    assert tally.failures == {"bad": "data: E: m"}
    assert host.told.failures == ["bad: data: E: m"]
    assert sorted(tally.abandoned) == ["child", "grandchild", "rows"]
    assert host.began == ["bad", "x", "shared", "other"]
    host.answers["bad"] = failed(bad, kind="unavailable")  # what cannot be is no failure
    tally = host.run(a_unit(bad), a_unit(child))
    assert (tally.failures, tally.abandoned) == ({}, [])
    assert "child" not in host.began


def test_a_full_disk_starts_nothing_more(host):
    steps = [a_step(name) for name in "abcd"]
    host.answers["a"] = failed(steps[0], kind="disk_full")
    host.until["b"] = lambda: "a" in host.ended
    tally = host.run(*map(a_unit, steps))
    assert tally.disk_full == "m"
    assert host.began == ["a", "b"]


def test_a_disk_that_turns_read_only_between_units_ends_the_run_with_its_name(host, monkeypatch):
    def read_only(_: object) -> set[str]:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tasks.work_queue.folders_asking", read_only)
    with pytest.raises(StoreError, match=r"LCE_HOME .*: got Read-only file system"):
        host.run(a_unit(a_step("one")), a_unit(a_step("two")))


def test_work_that_others_hold_is_waited_for_last_and_taken_over_when_they_die(host):
    held = a_step("held")
    lease = leased(host, held)
    rest = [a_step(name) for name in "abc"]
    host.last["c"] = lease.release
    tally = host.run(a_unit(held), *map(a_unit, rest))
    assert tally.failures == {}
    assert host.began == ["a", "b", "c", "held"]


def test_while_training_waits_for_gpus_only_what_ends_before_that_begins(eight_gpus):
    rows = a_step("rows", "rows")
    tuned, long = a_step("tuned", "finetune", rows=rows), a_step("long", "cell")
    short, late = (a_step(name, "cell", rows=rows) for name in ("short", "late"))
    eight_gpus.predicted |= {"long": 1e6, "short": 1e3, "late": 1e7}
    eight_gpus.until["long"] = lambda: "short" in eight_gpus.ended
    eight_gpus.run(*map(a_unit, (long, rows, tuned, short, late)))
    assert eight_gpus.began == ["long", "rows", "short", "tuned", "late"]


def test_slots_with_nothing_else_to_do_compute_parts_of_what_runs(host):
    long, other = a_step("long", "cell"), a_step("other", "cell")
    in_parts(host, long, "a", "b", "c")
    host.until["long"] = lambda: host.ended.count("long, helper 1") == 3
    tally = host.run(a_unit(long), a_unit(other))
    assert (tally.failures, tally.held) == ({}, [])
    assert host.began[:3] == ["long", "other", "long, helper 1"]
    assert host.store.parts(long).free() == []
    assert host.slots["long, helper 1"] != host.slots["long"]
    assert sorted(host.told.ended) == ["long", "other"]


def test_parts_of_what_others_compute_are_computed_while_it_is_waited_for(host):
    held = a_step("held", "cell")
    in_parts(host, held, "a")
    lease = leased(host, held)
    host.last["held, helper 1"] = lease.release
    host.run(a_unit(held))
    assert host.began == ["held, helper 1", "held"]


@pytest.mark.parametrize("result", [failed(a_step("long", "cell")), {"computed": 0, "held": []}])
def test_who_cannot_compute_parts_fails_nothing_and_is_not_asked_at_once_again(
    host, result, monkeypatch
):
    long = a_step("long", "cell")
    in_parts(host, long, "a")
    monkeypatch.setattr("flows.runs.scheduling.HELP_AGAIN_SECONDS", 600.0)
    host.until["long"] = lambda: "long, helper 1" in host.ended
    host.answers["part"] = result
    assert host.run(a_unit(long)).failures == {}
    assert host.began == ["long", "long, helper 1"]


def test_gpus_that_training_waits_for_compute_no_parts(eight_gpus):
    long, rows = a_step("long", "cell"), a_step("rows", "rows")
    tuned = a_step("tuned", "finetune", rows=rows)
    eight_gpus.last["rows"] = lambda: in_parts(eight_gpus, long, "a")
    eight_gpus.until["long"] = lambda: "rows" in eight_gpus.ended
    eight_gpus.run(a_unit(long), a_unit(rows), a_unit(tuned))
    assert eight_gpus.began == ["long", "rows", "tuned"]
