"""Parts of a step: committed one by one, and gone with it."""

import numpy as np
import pytest

from lce_core.store.garbage import Roots, find_garbage, sweep
from lce_core.store.lease import Lease
from lce_core.store.parts import Parts, folders_asking
from tests.support.free_steps import free_step, write_file

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


def test_parts_of_a_step_that_nobody_plans_are_garbage(store, parts):
    kept = Roots(ids={STEP.id})
    assert find_garbage(store, kept, 0) == []
    (found,) = find_garbage(store, Roots(), 0)
    assert (found.path, found.what) == (parts.folder, "progress")
