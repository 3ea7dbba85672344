"""What a collection removes and what it never does, in stores of a real plan's steps.

Parts of a step: committed one by one, and gone with it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lce_core.errors import DataError, SpecError
from lce_core.store.artifacts import Store
from lce_core.store.garbage import Garbage, Roots, collect_garbage, find_garbage, sweep
from lce_core.store.lease import Lease
from lce_core.store.parts import Parts, folders_asking
from lce_core.study.lock import lock_of, roots_of
from lce_core.study.plan import StudyPlan
from tests.lce_core.study.smoke_plans import fill, planned
from tests.support.free_steps import free_step, write_file
from tests.support.studies import SMOKE

CHILD = """
import shutil, sys, threading
from pathlib import Path
from lce_core.store.artifacts import Store
from lce_core.store.garbage import collect_garbage
from lce_core.study.lock import roots_of
acts = {"rename": Path.rename, "remove": shutil.rmtree}
stop, number, begun = sys.argv[2], int(sys.argv[3]), []
def until_stopped(name):
    def act(*arguments, **how):
        begun.append(name)
        if begun.count(stop) == number:
            print("stopped", flush=True)
            threading.Event().wait()
        return acts[name](*arguments, **how)
    return act
Path.rename, shutil.rmtree = until_stopped("rename"), until_stopped("remove")
store = Store(Path(sys.argv[1]))
collect_garbage(store, lambda: roots_of(store, ()), 0)
"""


def collect(store: Store, *locks: Path, prompt_bytes: int = 10**9) -> list[Garbage]:
    return collect_garbage(store, lambda: roots_of(store, locks), prompt_bytes)


def is_whole(store: Store, plan: StudyPlan) -> bool:
    return all(store.record(step) for step in plan.steps.values())


def test_what_a_study_no_longer_names_goes_and_nothing_else(store, text):
    old, new = planned(text), planned(text, training={**SMOKE["training"], "warmup_steps": 3})
    fill(store, old)
    assert collect(store) == []
    fill(store, new)  # the same study, changed
    gone = {step.fingerprint for step in old.steps.values()} - set(new.steps)
    kinds = {old.steps[fingerprint].kind for fingerprint in gone}
    assert kinds == {"finetune", "cell"}  # rows, held-out text and base are those of both
    listed = find_garbage(store, roots_of(store, ()), 10**9)
    assert {one.path for one in listed} == {
        store.path(old.steps[fingerprint]) for fingerprint in gone
    }
    assert all(one.bytes > 64 for one in listed)
    assert all(one.path.is_dir() for one in listed)
    assert collect(store) == listed
    assert not any(one.path.exists() for one in listed)
    assert is_whole(store, new)
    assert collect(store) == []


def test_a_plan_reaches_what_its_missing_steps_will_be_made_from(store, text):
    plan = planned(text)
    store.studies.save_plan("smoke", plan.to_json(), "smoke.yaml")
    for step in plan.steps.values():
        if step.kind == "rows":
            store.ensure(step, write_file, {})
    assert collect(store) == []


def test_a_lock_keeps_what_the_study_was(store, text, tmp_path):
    old, new = planned(text), planned(text, seeds=[5])
    fill(store, old)
    fill(store, new)
    published = tmp_path / "published.lock"
    published.write_text(lock_of(old).text(), encoding="utf-8")
    assert collect(store, published) == []
    store.studies.keep_lock("smoke", lock_of(old).text())
    assert collect(store) == []
    (store.home / "studies" / "smoke" / "study.lock").unlink()
    assert collect(store)
    assert not is_whole(store, old)
    assert is_whole(store, new)


def test_results_stay_where_the_data_they_need_are_out_of_reach(store, text):
    plan, without = planned(text), planned(None)
    fill(store, plan)
    assert not without.steps
    store.studies.save_plan("smoke", without.to_json(), "smoke.yaml")
    assert collect(store) == []
    assert is_whole(store, plan)
    fewer = {"benchmarks": SMOKE["benchmarks"][:1]}
    store.studies.save_plan("smoke", planned(None, **fewer).to_json(), "smoke.yaml")
    assert collect(store) == []  # which cells are whose is not known before the data are back
    store.studies.save_plan("smoke", planned(text, **fewer).to_json(), "smoke.yaml")
    gone = {one.path.name for one in collect(store)}
    kept = SMOKE["benchmarks"][0]["name"]
    cells = [step for step in plan.steps.values() if step.kind == "cell"]
    assert gone == {Path(step.folder).name for step in cells if step.axes["benchmark"] != kept}


def test_a_plan_without_its_data_keeps_what_others_computed_under_other_labels(store, text):
    """Labels are no part of an id: an artifact has those of whoever computed it first."""
    entries = [{"name": one} if isinstance(one, str) else one for one in SMOKE["methods"]]
    methods = [{**one, "label": f"my_{one['name']}"} for one in entries]
    fill(store, planned(text))
    renamed = planned(text, methods=methods)
    for plan in (renamed, planned(None, methods=methods)):
        store.studies.save_plan("smoke", plan.to_json(), "smoke.yaml")
        assert collect(store) == []
    assert is_whole(store, renamed)


def test_leftovers_of_steps_go(store, text):
    plan = planned(text)
    fill(store, plan)
    done, *_, waiting = plan.steps.values()
    (store.path(waiting) / "record.json").unlink()
    places = {
        "finished": store.home / "progress" / done.id,
        "unfinished": store.home / "progress" / waiting.id,
        "unknown": store.home / "progress" / "0123456789ab",
        "attempt": store.home / "artifacts" / "cell" / ".attempt-0123456789ab-1",
    }
    for folder in places.values():
        folder.mkdir()
        (folder / "a").write_text("a", encoding="utf-8")
    for name in (done.id, waiting.id, "0123456789ab"):
        note = {"folder": f"cell/x-{name}", "class": "data", "message": "", "attempts": 1}
        note |= {"folders": {}, "axes": {}, "short_of_memory": 0}
        (store.home / "failures" / f"{name}.json").write_text(json.dumps(note), encoding="utf-8")
    gone = {(one.what, one.path.name) for one in collect(store)}
    assert gone == {
        ("progress", done.id),
        ("progress", "0123456789ab"),
        ("attempt", ".attempt-0123456789ab-1"),
        ("failure", f"{done.id}.json"),
        ("failure", "0123456789ab.json"),
    }
    assert places["unfinished"].is_dir()
    assert store.failures.of(waiting)


def test_the_oldest_prompts_go_until_the_rest_fits(store, text):
    fill(store, planned(text))
    for age, name in enumerate(("new", "old", "oldest")):
        file = store.prompts / f"{name}.safetensors"
        file.write_bytes(bytes(100))
        os.utime(file, (1_000_000 - age, 1_000_000 - age))
    assert [one.path.stem for one in collect(store, prompt_bytes=299)] == ["oldest"]
    assert {one.path.stem for one in collect(store, prompt_bytes=0)} == {"new", "old"}


def test_nothing_goes_while_a_step_is_computed(store, text):
    plan = planned(text)
    fill(store, plan)
    fill(store, planned(text, seeds=[5]))
    lease = Lease.acquire(store.home / "leases", "0123456789ab")
    assert lease
    with lease:
        with pytest.raises(SpecError, match="0123456789ab"):
            collect(store)
        assert is_whole(store, plan)
        assert find_garbage(store, roots_of(store, ()), 0)  # listing is free
    assert collect(store)


def test_without_a_readable_plan_or_lock_nothing_goes(store, text):
    plan = planned(text)
    fill(store, plan)
    folder = store.home / "studies" / "smoke"
    for content in ("{", "[]", "{}", '{"cells": [1]}'):
        (folder / "plan.json").write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match="not a plan"):
            collect(store)
    (folder / "plan.json").unlink()
    with pytest.raises(SpecError, match="no lock"):
        collect(store)
    (folder / "study.lock").write_text("<<<<<<<", encoding="utf-8")
    with pytest.raises(DataError, match="not a lock"):
        collect(store)
    assert is_whole(store, plan)


@pytest.mark.parametrize(("stop", "number"), [("rename", 2), ("rename", 14), ("remove", 2)])
def test_a_collection_that_is_killed_loses_nothing_reachable(store, text, stop, number):
    keep, drop = planned(text), planned(text, seeds=[5])
    fill(store, drop)
    fill(store, keep)
    assert len(find_garbage(store, roots_of(store, ()), 0)) >= 14
    command = [sys.executable, "-c", CHILD, str(store.home), stop, str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "stopped\n"
        child.kill()
    assert is_whole(store, keep)
    assert list((store.home / "artifacts").glob("*/.attempt-garbage-*"))
    collect(store)
    assert is_whole(store, keep)
    assert find_garbage(store, roots_of(store, ()), 0) == []
    left = {one for one in drop.steps if store.find(one)}
    assert left == set(drop.steps) & set(keep.steps)


def test_an_artifact_under_a_name_of_nobody_stays(store, text):
    fill(store, planned(text))
    notes = store.home / "artifacts" / "cell" / "my-notes"
    notes.mkdir()
    assert find_garbage(store, roots_of(store, ()), 0) == []
    assert notes not in [one.path for one in find_garbage(store, Roots(), 0)]


def test_what_stays_keeps_what_it_was_made_from(store, text):
    plan = planned(text)
    fill(store, plan)
    cell = next(step for step in plan.steps.values() if "checkpoint" in step.parents)
    kept = {cell.fingerprint}
    for step in reversed(plan.steps.values()):
        if step.fingerprint in kept:
            kept |= set(step.parents.values())
    assert {"cell", "base", "rows", "held_out"} <= {plan.steps[one].kind for one in kept}
    gone = {one.path for one in find_garbage(store, Roots({cell.id}), 0)}
    assert gone == {store.path(s) for s in plan.steps.values() if s.fingerprint not in kept}


STEP = free_step("cell", "long", {"n": 1}, {}, {"benchmark": "perplexity"})


@pytest.fixture
def parts(store) -> Parts:
    """Two of a step that are asked for, one of them done."""
    parts = store.parts(STEP)
    parts.open()
    parts.ask({"parts": {"a": [0], "b": [1]}})
    parts.write("a", {"nll": np.arange(3.0)})
    return parts


def test_a_part_is_read_as_it_was_written_and_nobody_is_asked_for_it_again(parts):
    found = parts.read("a")
    assert found is not None
    np.testing.assert_array_equal(found["nll"], np.arange(3.0))
    assert parts.read("b") is None
    assert parts.free() == ["b"]


def test_a_part_has_a_lease_of_its_own(store, parts):
    lease = parts.lease("b")
    assert lease is not None
    assert parts.left() == {"b": True}
    assert parts.free() == []
    assert parts.lease("b") is None
    sweep(store)
    assert parts.left() == {"b": True}
    assert parts.folder.is_dir()
    with Lease.acquire(store.home / "leases", STEP.id) or pytest.fail("the step's is another"):
        pass
    lease.release()
    assert parts.left() == {"b": False}


def test_who_asks_is_found_and_no_folder_of_another_sort(store, parts):
    (store.home / "progress" / "of-training").mkdir()
    assert folders_asking(store.home) == {STEP.id}


def test_parts_go_with_the_commit_of_their_step(store, parts):
    store.ensure(STEP, write_file, {})
    assert not parts.folder.exists()
    with pytest.raises(FileNotFoundError):
        parts.write("b", {"nll": np.zeros(1)})
    assert not parts.folder.exists()


def test_what_a_killed_process_left_of_parts_is_swept(store, parts):
    parts.folder.rename(store.home / "aside")
    store.ensure(STEP, write_file, {})
    (store.home / "aside").rename(parts.folder)  # killed between commit and removal
    lease = parts.lease("b")
    assert lease is not None
    content = lease._path.read_text(encoding="utf-8")
    lease._path.write_text(content.replace('"pid": ', '"pid": 9'), encoding="utf-8")
    sweep(store)
    assert not parts.folder.exists()
    assert not list((store.home / "leases").glob("*.json"))
