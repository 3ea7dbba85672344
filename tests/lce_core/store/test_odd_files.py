"""Files of a home that became something else, modes of files, and what is left over."""

import errno
import json
import os
import stat
import time

import numpy as np
import pytest
from safetensors.numpy import save_file

from lce_core.errors import DefectError, StoreError
from lce_core.store import file_facts
from lce_core.store.artifacts import Attempt
from lce_core.store.failures import explained
from lce_core.store.file_facts import FileFacts
from lce_core.store.garbage import ABANDONED_SECONDS, sweep
from lce_core.store.identity import sha256_file
from lce_core.store.lease import Lease, holders, is_held
from lce_core.store.odd_files import put, read_mapping
from lce_core.store.records import write_json
from lce_core.store.steps import Step
from lce_core.training.loss_log import read_entries
from tests.support.file_events import opened
from tests.support.free_steps import free_step, write_file
from tests.support.odd_homes import CHANGES

pytestmark = pytest.mark.timeout(600)  # a FIFO that is opened blocks for good

ODD = [name for name in CHANGES if name not in ("deleted", "truncated")]


def a_step(name: str = "x") -> Step:
    return free_step("rows", name, {"tokens": name}, {})


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_failure_lease_record_or_log_counts_as_none(store, odd):
    step, leases = a_step(), store.home / "leases"
    CHANGES[odd](store.home / "failures" / f"{step.id}.json")
    assert store.failures.of(step) is None
    assert store.failures.all() == {}
    assert store.failures.attempts() == {}
    store.failures.add(step, ValueError("no"), {})
    assert store.failures.attempts() == {step.id: 1}
    CHANGES[odd](leases / "s.json")
    assert not is_held(leases, "s")
    assert holders(leases) == {}
    with Lease.acquire(leases, "s") or pytest.fail("free"):
        assert is_held(leases, "s")
    store.ensure(step, write_file, {})
    CHANGES[odd](store.path(step) / "record.json")
    assert store.record(step) is None
    assert list(store.records()) == []
    assert store.ensure(step, write_file, {}) == "computed"
    CHANGES[odd](store.home / "loss.jsonl")
    assert read_entries(store.home / "loss.jsonl") == []


@pytest.mark.parametrize("odd", ODD)
def test_an_artifact_and_progress_that_are_no_folders_are_made_again(store, odd):
    step = a_step()
    progress = store.home / "progress" / step.id
    for path in (store.named(step), progress):
        path.parent.mkdir(exist_ok=True)
        CHANGES[odd](path)
    assert store.ensure(step, write_file, {}) == "computed"
    assert store.record(step) is not None
    sweep(store)
    assert not os.path.lexists(progress)
    assert list(store.named(step).parent.iterdir()) == [store.named(step)]


@pytest.mark.parametrize("odd", ODD)
def test_what_is_known_of_files_is_written_over_anything(store, odd, monkeypatch):
    monkeypatch.setattr(file_facts, "TICK_SECONDS", -1e9)  # no file is too new to be known
    CHANGES[odd](store.home / "cache" / "files")
    text = store.home / "text"
    text.write_text("text", encoding="utf-8")
    facts = FileFacts(store.home)
    assert facts.sha256(text) == sha256_file(text)
    facts.save()
    with opened(text) as seen:
        assert FileFacts(store.home).sha256(text) == facts.sha256(text)
    assert seen == []


@pytest.mark.parametrize("odd", ["a FIFO", "a loop of links"])
def test_no_file_is_hashed_but_a_regular_one(tmp_path, odd):
    CHANGES[odd](tmp_path / "x")
    with pytest.raises(OSError):  # noqa: PT011 - each has its own number
        sha256_file(tmp_path / "x")


def test_a_folder_in_a_files_place_is_set_aside_with_what_it_holds(tmp_path):
    place, aside = tmp_path / "x.json", tmp_path / "aside"
    CHANGES["a folder"](place)
    write_json(place, {"a": 1})
    (kept,) = tmp_path.glob("x.json.set-aside-*")
    assert (kept / "something").read_text(encoding="utf-8") == "else"
    CHANGES["a folder"](place)
    aside.write_text("{}", encoding="utf-8")
    put(aside, place)
    assert read_mapping(place) == {}


@pytest.mark.parametrize(
    ("place", "odd"),
    [("leases", "empty"), ("studies", "a FIFO"), ("artifacts/cell", "a loop of links")],
)
def test_something_else_in_a_folders_place_is_named(store, place, odd):
    CHANGES[odd](store.home / place)
    with pytest.raises(StoreError, match=f"home/{place}: got a file, .*; expected a folder"):
        store.prepare()


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_of_an_artifact_have_the_modes_that_the_umask_gives(store, umask):
    def private(attempt: Attempt) -> dict[str, object]:
        (attempt.out / "model").mkdir()
        for place in (attempt.out, attempt.out / "model"):
            save_file({"x": np.zeros(1)}, place / "x.safetensors")
            (place / "y").touch(mode=0o600)
        return {}

    before = os.umask(umask)
    try:
        store.ensure(a_step(), private, {})
    finally:
        os.umask(before)
    files = [path for path in store.path(a_step()).rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666 & ~umask}


def test_a_run_sweeps_what_killed_processes_left(store):
    step, other = a_step(), a_step("y")
    store.ensure(step, write_file, {})
    store.failures.add(step, ValueError("on this host, before another one did it"), {})
    store.failures.add(other, ValueError("still to do"), {})
    dead = {"host": "elsewhere", "pid": 1, "started": 1.0}
    names = (".a.json.0123abcd", "..catalog.duckdb.origin.json.0123abcd")
    left = [store.home / name for name in names]
    left += [store.home / "cache" / ".files.0123abcd", store.home / "leases" / ".x.json.01234567"]
    left += [store.home / "leases" / f"{step.id}.json"]
    kept = [store.home / ".a.json.4567abcd", store.home / "leases" / f"{other.id}.json"]
    kept += [store.home / ".catalog.duckdb.lock", store.home / "leases" / ".clock"]
    old = time.time() - ABANDONED_SECONDS - 60
    for path in (*left, *kept):
        path.write_text(json.dumps(dead), encoding="utf-8")
        os.utime(path, (old, old))
    os.utime(kept[0])  # somebody may be writing it
    sweep(store)
    assert [path for path in left if path.exists()] == []
    assert [path for path in kept if not path.exists()] == []
    assert store.failures.of(step) is None
    assert store.failures.of(other) is not None


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    told = explained(PermissionError(errno.EACCES, "Permission denied", "x/y"), tmp_path)
    assert isinstance(told, StoreError)
    assert str(told).startswith("x/y: got Permission denied; expected ")


def test_a_defect_is_told_in_one_sentence_that_names_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        {}["cells"]
    except KeyError as error:
        told = explained(error, tmp_path)
    assert isinstance(told, DefectError)
    (kept,) = tmp_path.glob("lce-traceback-*.txt")
    assert str(kept) in str(told)
    assert "KeyError: 'cells'" in kept.read_text(encoding="utf-8")
    assert __file__ in kept.read_text(encoding="utf-8")
