"""A plan against a store that earlier plans of its study have filled, and against a lock."""

import json
from typing import NamedTuple

from lce_core.benchmarks import passkey
from lce_core.errors import NonFiniteError
from lce_core.store.artifacts import Store
from lce_core.store.study_folders import EARLIER
from lce_core.study.lock import ids_before, lock_of
from lce_core.study.plan import StudyPlan
from lce_core.study.plan_diff import Orphan, compare, lock_changes
from lce_core.study.progress import StepState, inspect
from lce_core.study.step_kinds import CellSpec
from tests.lce_core.study.smoke_plans import fill, planned, written
from tests.support.studies import SMOKE

BENCHMARKS = SMOKE["benchmarks"]


class Found(NamedTuple):
    states: dict[str, StepState]
    orphans: tuple[Orphan, ...]


def diff(plan: StudyPlan, store: Store) -> Found:
    states = inspect(plan, store, {})
    return Found(*compare(plan, store, states, ids_before(store, plan.study.study)))


def changes(plan: StudyPlan, found: Found) -> dict[tuple[str, str], set[str]]:
    """Changes of cells by benchmark, and of other steps by kind."""
    by: dict[tuple[str, str], set[str]] = {}
    for step in plan.steps.values():
        place = (step.kind, str(step.axes.get("benchmark", "")))
        by.setdefault(place, set()).add(found.states[step.fingerprint].change)
    return by


def test_a_raised_version_makes_its_cells_stale_and_names_itself(text, store, monkeypatch):
    before = planned(text)
    assert set().union(*changes(before, diff(before, store)).values()) == {"new"}
    fill(store, before)
    monkeypatch.setattr(passkey.BENCHMARK, "plugin_version", passkey.VERSION + 1)
    differs = f"benchmark.version: {passkey.VERSION} -> {passkey.VERSION + 1}"
    after = planned(text)
    found = diff(after, store)
    assert changes(after, found)["cell", "passkey"] == {"stale"}
    assert changes(after, found)["cell", "perplexity"] == {"done"}
    ids = {cell.step.id for cell in before.cells if cell.step}
    for cell in after.cells:
        if cell.benchmark == "passkey" and cell.step:
            state = found.states[cell.step.fingerprint]
            assert state.differs == (differs,)
            assert state.was in ids
            assert state.reason == f"changed: {differs}"
    assert found.orphans == ()  # what is replaced is told with what replaces it
    fill(store, after)
    done = diff(after, store)
    assert set().union(*changes(after, done).values()) == {"done"}
    assert len(done.orphans) == sum(cell.benchmark == "passkey" for cell in before.cells)
    now = {cell.step.id for cell in after.cells if cell.step}
    for orphan in done.orphans:
        assert orphan.differs == (differs,)
        assert orphan.now in now
    # Without its data a study has left nothing behind.
    assert diff(planned(None), store).orphans == ()


def test_what_is_planned_no_more_is_orphaned_with_what_is_gone(text, store):
    whole = planned(text)
    fill(store, whole)
    shorter = [{**entry, "lengths": [128]} for entry in BENCHMARKS]
    found = diff(planned(text, benchmarks=shorter), store)
    gone = {cell.step.id for cell in whole.cells if cell.step and cell.eval_length == 256}
    assert {orphan.id for orphan in found.orphans} == gone
    assert {(orphan.differs, orphan.now) for orphan in found.orphans} == {
        (("eval_length 256 is no longer in the study",), None)
    }


def test_ids_of_earlier_plans_stay_known_while_the_store_holds_them(text, store):
    fill(store, planned(text))
    listed = store.home / "studies" / "smoke" / EARLIER
    assert not listed.exists()
    one = planned(text, benchmarks=BENCHMARKS[:1])
    for _ in range(2):  # the second plan must not forget what the first one has noted
        fill(store, one)
    ids = json.loads(listed.read_text(encoding="utf-8"))["steps"]
    assert {orphan.id for orphan in diff(one, store).orphans} == set(ids)
    assert len(ids) == 6  # three variants at two lengths
    fill(store, planned(text))
    assert json.loads(listed.read_text(encoding="utf-8"))["steps"] == []


def test_failures_and_damage_are_told_apart_from_what_is_new(text, store):
    plan = planned(text)
    fill(store, plan)
    cells = [cell.step for cell in plan.cells if cell.step][:4]
    (store.home / "artifacts" / cells[0].folder / "file").write_text("b", encoding="utf-8")
    for step, error in ((cells[1], RuntimeError("no")), (cells[2], NonFiniteError(*"abcd"))):
        path = store.path(step)
        path.rename(path.with_name(f".{path.name}"))
        store.failures.add(step, error, {})
    states = diff(plan, store).states
    found = [states[step.fingerprint] for step in cells]
    assert [(one.state, one.change) for one in found] == [
        ("missing", "stale"),
        ("missing", "failed"),
        ("failed", "failed"),
        ("done", "done"),
    ]
    assert found[0].reason == "its artifact is damaged"


def test_a_seed_more_is_new_and_a_benchmark_less_is_gone(text):
    old = lock_of(planned(text))
    more, _ = lock_changes(old, planned(text, seeds=[0, 7]))
    assert {one.sign for one in more} == {"+"}
    assert all("-s7" in one.name for one in more if one.kind in ("base", "cell", "finetune"))
    name = SMOKE["benchmarks"][0]["name"]
    less, _ = lock_changes(old, planned(text, benchmarks=SMOKE["benchmarks"][1:]))
    assert {(one.sign, one.kind) for one in less} == {("-", "cell")}
    assert all(f"-{name}-" in one.name for one in less)


def test_other_text_is_named_by_its_digest(text):
    old = lock_of(planned(text))
    found, _ = lock_changes(old, planned(written(text, "one three")))
    assert len(found) == len(old.steps)
    assert {one.fields[0].partition(":")[0] for one in found if one.kind == "rows"} == {"digest"}


def test_a_raised_version_of_a_kind_is_named(text, monkeypatch):
    old = lock_of(planned(text))
    monkeypatch.setattr(CellSpec, "version", 2)
    found, _ = lock_changes(old, planned(text))
    assert {one.kind for one in found} == {"cell"}
    assert {one.fields for one in found} == {("version of kind cell: 1 -> 2",)}


def test_without_its_data_a_study_is_compared_in_all_but_digests(text):
    old = lock_of(planned(text))
    assert lock_changes(old, planned(None)) == ([], len(old.steps))
    training = {**SMOKE["training"], "tokens_per_step": 8192}
    found, unchecked = lock_changes(old, planned(None, training=training))
    assert {one.new for one in found} == {None}
    assert any("training.tokens_per_step" in " ".join(one.fields) for one in found)
    assert 0 < unchecked < len(old.steps)
    # What the lock lacks is new, also where nobody knows its id.
    found, unchecked = lock_changes(old, planned(None, seeds=[0, 7]))
    assert unchecked == len(old.steps)
    assert {(one.sign, one.new) for one in found} == {("+", None)}
    more, _ = lock_changes(old, planned(text, seeds=[0, 7]))
    assert {(one.kind, one.name) for one in found} == {(one.kind, one.name) for one in more}
