"""Records changed by hand, cut short or replaced, against the real store and its rereading."""

import json
from typing import Any

import pytest

from lce_core.store import file_facts
from lce_core.store.artifacts import Attempt, Store
from lce_core.store.records import RECORD, Record, SealError, sealed
from lce_core.store.steps import Step
from lce_core.store.verification import reread
from tests.support.free_steps import free_step

Content = dict[str, Any]


def a_step(n: int = 1) -> Step:
    return free_step("cell", "x", {"n": n}, {})


def write(attempt: Attempt) -> dict[str, object]:
    (attempt.out / "a.txt").write_text("whole")
    return {"scores": [{"metric": "perplexity", "value": 16.524}]}


@pytest.fixture(autouse=True)
def _with_a_step(store) -> None:
    store.ensure(a_step(), write, {"slots": 1})


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["result"]["scores"][0].update(value=17.524),
        lambda record: record["spec"].update(n=2),
        lambda record: record["execution"].clear(),
        lambda record: record.update(seconds=record["seconds"] + 1),
        lambda record: record.update(note="mine"),
        lambda record: record.update(seal=["0" * 64]),
        lambda record: record.pop("seal"),
    ],
    ids=["score", "spec", "execution", "seconds", "extra", "list", "without"],
)
def test_a_record_of_which_anything_was_changed_counts_as_damaged(store, change):
    file = store.path(a_step()) / RECORD
    before = Record.read(file.parent)
    content = json.loads(file.read_text(encoding="utf-8"))
    change(content)
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(SealError):
        Record.read(file.parent)
    assert store.record(a_step()) is None
    assert not store.has_finished(a_step().fingerprint)
    assert list(store.records()) == []
    assert store.ensure(a_step(), write, {}) == "computed"
    assert Record.read(file.parent).result == before.result


@pytest.mark.parametrize(
    "content",
    [b"{", b"{}", b"[" * 5000, b"\xff"],
    ids=["cut", "object", "nested", "bytes"],
)
def test_what_is_no_record_counts_as_damaged(store, content):
    (store.path(a_step()) / RECORD).write_bytes(content)
    assert store.record(a_step()) is None
    assert list(reread(store, lambda done, total: None).damage) == [store.path(a_step())]
    assert store.ensure(a_step(), write, {}) == "computed"


# Databases take neither, and the second would end commands in an OverflowError.
@pytest.mark.parametrize("odd", ["half of a pair: \ud800", 1 << 63, -(1 << 63) - 1, {"\udfff": 1}])
@pytest.mark.parametrize("part", ["axes", "environment", "result"])
def test_a_sealed_record_that_no_database_could_store_counts_as_damaged(store, part, odd):
    file = store.path(a_step()) / RECORD
    content = json.loads(file.read_text(encoding="utf-8"))
    content[part]["odd"] = odd
    file.write_text(json.dumps(sealed(content)), encoding="utf-8")
    assert store.record(a_step()) is None
    assert list(reread(store, lambda done, total: None).damage) == [store.path(a_step())]
    assert store.ensure(a_step(), write, {}) == "computed"


def test_a_result_that_could_not_be_read_again_is_not_committed(store):
    with pytest.raises(ValueError, match="beyond 64 bits"):
        store.ensure(a_step(2), lambda attempt: {**write(attempt), "odd": 1 << 63}, {})
    assert not store.has_finished(a_step(2).fingerprint)


def test_another_order_or_layout_of_the_same_record_is_the_same_record(store):
    file = store.path(a_step()) / RECORD
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(dict(reversed(content.items()))), encoding="utf-8")
    assert store.record(a_step()) is not None


def test_rereading_finds_a_flipped_byte_that_is_served_and_corrects_the_memory(store, monkeypatch):
    monkeypatch.setattr(file_facts, "TICK_SECONDS", -1e9)
    store.ensure(a_step(2), write, {})
    assert store.record(a_step())
    store.file_facts.save()
    folder = store.path(a_step())
    file, look = folder / "a.txt", file_facts._stat
    before = file.stat()
    file.write_text("whale")  # other bytes, and below a look at the file that is as before
    monkeypatch.setattr(file_facts, "_stat", lambda path: before if path == file else look(path))
    assert Store(store.home).record(a_step()), "the memory still serves it"
    told: list[tuple[int, int]] = []
    found = reread(Store(store.home), lambda done, total: told.append((done, total)))
    assert found.damage == {folder: "the content of a.txt is not what its record says"}
    assert (found.num_artifacts, found.num_bytes, told) == (2, 10, [(5, 10), (10, 10)])
    assert Store(store.home).record(a_step()) is None
    assert Store(store.home).record(a_step(2)) is not None
