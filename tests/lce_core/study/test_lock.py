"""A lock says which ids moved and why, and reads back as it was written."""

from lce_core.study.lock import Lock, lock_of
from lce_core.study.plan_diff import lock_changes
from lce_core.study.step_kinds import CellSpec
from tests.lce_core.study.smoke_plans import planned, written
from tests.support.studies import SMOKE


def test_a_lock_has_every_id_and_reads_back_as_written(text):
    plan = planned(text)
    lock = lock_of(plan)
    assert set(lock.steps) == {step.id for step in plan.steps.values()}
    content = lock.text()
    again = Lock.parse(content, "study.lock")
    assert again.text() == content
    assert again.steps == lock.steps
    assert lock_changes(again, plan) == ([], 0)


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
