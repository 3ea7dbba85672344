"""What a run takes next, beside others in the same store: leases and artifacts are real ones."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lce_core.errors import NonFiniteError, SpecError
from lce_core.store.artifacts import Store
from lce_core.store.lease import Lease
from lce_core.store.steps import Step
from lce_core.study.units import Unit
from tasks.work_queue import MAX_RETRY_SECONDS, WorkQueue
from tasks.worker import compute
from tasks.worker_process import Event
from tests.support.free_steps import free_step, write_file
from tests.support.studies import wait_until


def cell(name: str, benchmark: str = "passkey", **parents: Step) -> Step:
    return free_step("cell", name, {"name": name}, parents, {"benchmark": benchmark})


def a_unit(*steps: Step) -> Unit:
    return Unit(steps[0].name, steps[0].kind, steps)


A, B, C, D = (cell(name) for name in "abcd")
ONE, TWO = a_unit(A, B), a_unit(C, D)
TEXT = a_unit(cell("t", "perplexity"), cell("u", "perplexity"))


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "home")
    store.prepare()
    return store


class Others:
    def __init__(self, store: Store, leases: ExitStack) -> None:
        self._store, self._leases = store, leases

    def hold(self, step: Step) -> Lease:
        lease = Lease.acquire(self._store.home / "leases", step.id)
        assert lease is not None
        return self._leases.enter_context(lease)

    def finish(self, step: Step) -> None:
        self._store.ensure(step, write_file, {})

    def fail(self, step: Step, error: Exception) -> None:
        self._store.failures.add(step, error, {})


@pytest.fixture
def others(store) -> Iterator[Others]:
    with ExitStack() as leases:
        yield Others(store, leases)


def queue(store: Store, *units: Unit, done: frozenset[str] = frozenset()) -> WorkQueue:
    return WorkQueue(units, set(done), store, {})


def take(found: WorkQueue, *, refuse: tuple[str, ...] = ()) -> tuple[str, list[str], bool] | None:
    """Name and steps of what is taken next, and whether others have the rest."""
    taken = found.claim(lambda unit: unit.name not in refuse)
    if taken is None:
        return None
    return taken.unit.name, [step.name for step in taken.unit.steps], taken.shared


def test_what_nobody_holds_comes_before_the_rest_of_what_is_held(store, others):
    others.hold(A)
    found = queue(store, ONE, TWO)
    assert take(found) == ("c", ["c", "d"], False)
    assert take(found) == ("a", ["b"], True)
    assert take(found) is None
    assert found.num_held == 1
    assert [step.name for unit in found.waiting for step in unit.steps] == ["a"]


def test_of_text_whose_windows_are_read_off_longer_ones_nothing_is_shared(store, others):
    lease = others.hold(TEXT.steps[0])
    found = queue(store, TEXT)
    assert take(found) is None
    assert found.num_held == 1
    lease.release()  # whoever held it has died
    assert take(found) == ("t", ["t", "u"], False)


def test_what_others_finished_is_neither_taken_nor_waited_for(store, others):
    child = a_unit(cell("child", parent=A))
    found = queue(store, ONE, TWO, child)
    others.finish(A)
    others.finish(C)
    others.finish(D)
    assert take(found) is None  # without a listing it is seen that something has changed
    assert found.is_due
    ended = found.poll()
    assert [one.step.name for one in ended] == ["a", "c", "d"]
    assert take(found) == ("a", ["b"], False)
    assert take(found) == ("child", ["child"], False)
    assert found.waiting == []


def test_what_others_found_impossible_is_given_up_and_what_may_pass_is_not(store, others):
    others.fail(C, NonFiniteError("before", "nan", "a number", "look"))  # and is tried again
    found = queue(store, ONE, TWO)
    others.fail(A, NonFiniteError("step 3", "loss nan", "a finite loss", "look"))
    others.fail(B, SpecError("a", "b", "c", "d"))
    assert take(found) is None
    assert found.is_due
    (ended,) = found.poll()
    assert ended.step == A
    assert ended.given_up is not None
    assert ended.given_up.state == "failed"
    assert "non_finite" in ended.given_up.reason
    assert A.fingerprint not in found.done
    assert take(found) == ("a", ["b"], False)
    assert take(found) == ("c", ["c", "d"], False)


@pytest.mark.parametrize("damaged", ["file", "record.json"])
def test_an_artifact_that_was_damaged_before_is_no_work_of_others(store, others, damaged):
    others.finish(A)
    (store.path(A) / damaged).write_text("{")
    found = queue(store, ONE)
    assert found.poll() == []
    assert take(found) == ("a", ["a", "b"], False)


@pytest.mark.parametrize("damaged", ["file", "record.json"])
def test_a_damaged_artifact_that_others_failed_to_replace_is_given_up(store, others, damaged):
    others.finish(A)
    (store.path(A) / damaged).write_text("{")
    found = queue(store, ONE)
    others.fail(A, NonFiniteError("step 3", "loss nan", "a finite loss", "look"))
    assert take(found) is None
    assert [(one.step, one.given_up is None) for one in found.poll()] == [(A, False)]
    assert take(found) == ("a", ["b"], False)


def test_a_folder_that_is_no_artifact_does_not_keep_a_step_from_being_taken(store):
    found = queue(store, ONE)
    store.path(A).mkdir(parents=True)
    assert take(found) is None
    assert found.poll() == []
    assert take(found) == ("a", ["a", "b"], False)


def test_steps_found_held_are_put_back_and_taken_once_they_are_free(store, others):
    found = queue(store, ONE)
    taken = found.claim(lambda unit: True)
    assert taken is not None
    lease = others.hold(B)
    found.put_back(taken.unit, [B.fingerprint])
    assert take(found) is None
    assert found.num_held == 1
    lease.release()
    wait_until(lambda: take(found) == ("a", ["b"], False))


def test_a_step_that_looks_free_here_and_held_elsewhere_is_tried_ever_less_often(
    store, monkeypatch
):
    now = [100.0]
    monkeypatch.setattr("tasks.work_queue.time.monotonic", lambda: now[0])
    found, tried = queue(store, ONE), []
    while now[0] < 160.0:
        if (taken := found.claim(lambda unit: True)) is not None:
            tried.append(now[0])
            found.put_back(taken.unit, [A.fingerprint, B.fingerprint])
        now[0] += 0.1
    gaps = [later - before for before, later in itertools.pairwise(tried)]
    assert gaps == sorted(gaps)
    assert max(gaps) == pytest.approx(MAX_RETRY_SECONDS, abs=0.11)
    assert 10 < len(tried) < 16


@pytest.mark.parametrize(
    ("statuses", "shared", "num_asked"),
    [
        (["held", "computed", "computed", "computed"], False, 1),
        (["existing", "held", "computed", "computed"], False, 2),
        (["failed", "held", "computed", "computed"], False, 4),
        (["held", "computed", "held", "computed"], True, 4),
    ],
)
def test_a_worker_leaves_a_unit_whose_next_step_is_held_unless_the_unit_is_shared(
    statuses, shared, num_asked
):
    asked, sent = iter(statuses), list[Event]()
    compute((A, B, C, D), lambda step: next(asked), sent.append, shared=shared)
    assert len(statuses) - len(list(asked)) == num_asked
    assert [event["fingerprint"] for event in sent] == [
        step.fingerprint for step in (A, B, C, D)[num_asked:]
    ]
    assert {event["status"] for event in sent} <= {"held"}
