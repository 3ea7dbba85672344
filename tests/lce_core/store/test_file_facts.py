"""Facts of files: never an old one for a changed file, and no file opened for a known one."""

import hashlib
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lce_core.store import file_facts
from lce_core.store.file_facts import FileFacts
from tests.support.file_events import opened

TICK = 0.02
"""Seconds; longer than that of this machine's file systems."""


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def settle() -> None:
    """Make all files older than one tick of the clock."""
    time.sleep(2 * TICK)


@pytest.fixture(autouse=True)
def _short_tick(monkeypatch) -> None:
    monkeypatch.setattr(file_facts, "TICK_SECONDS", TICK)


@pytest.fixture
def home(tmp_path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "file"
    file.write_text("one")
    settle()
    return file


def saved(home: Path, file: Path) -> None:
    facts = FileFacts(home)
    assert facts.sha256(file) == digest(file.read_text())
    facts.save()


@pytest.mark.parametrize("other_inode", [False, True])
def test_a_file_that_changed_and_has_its_old_times_is_read_again(home, file, other_inode):
    saved(home, file)
    before, aside = file.stat(), file.with_name("aside")
    written = aside if other_inode else file
    written.write_text("two")  # as long as before
    os.utime(written, ns=(before.st_atime_ns, before.st_mtime_ns))
    written.replace(file)
    assert FileFacts(home).sha256(file) == digest("two")


def test_a_second_change_within_a_tick_of_the_clock_is_seen(home, file, monkeypatch):
    def coarse(path: Path) -> SimpleNamespace:
        """As a file system whose clock ticks every two seconds."""
        found, tick = path.stat(), 2_000_000_000
        times = {n: getattr(found, n) // tick * tick for n in ("st_mtime_ns", "st_ctime_ns")}
        return SimpleNamespace(**times, st_size=found.st_size, st_ino=found.st_ino)

    monkeypatch.setattr(file_facts, "TICK_SECONDS", 2.0)
    monkeypatch.setattr(file_facts, "_stat", coarse)
    facts = FileFacts(home)
    for content in ("two", "six", "ten"):  # as long as each other
        file.write_text(content)
        assert facts.sha256(file) == digest(content)


def test_a_file_of_the_future_is_never_taken_as_known(home, file):
    os.utime(file, (time.time() + 3600, time.time() + 3600))
    saved(home, file)
    with opened(file) as seen:
        FileFacts(home).sha256(file)
    assert seen == [str(file)]


def test_what_changed_while_it_was_read_is_not_remembered(home, file):
    def slowly() -> str:
        found = file.read_text()
        file.write_text("two")
        return found

    facts = FileFacts(home)
    assert facts.of("text", file, [file], slowly) == "one"
    settle()
    assert facts.of("text", file, [file], file.read_text) == "two"


def test_kinds_of_facts_and_places_are_told_apart(home, file):
    facts, other = FileFacts(home), file.with_name("other")
    other.write_text("one")
    settle()
    assert facts.of("length", file, [file], lambda: 3) == 3
    assert facts.of("words", file, [file], lambda: ["one"]) == ["one"]
    assert facts.of("length", file.parent, [file, other], lambda: 6) == 6
    assert facts.of("length", file, [file], lambda: pytest.fail("known")) == 3
    # With other files it is another fact of the place.
    assert facts.of("length", file.parent, [file], lambda: 4) == 4


@pytest.mark.parametrize("damage", ["cut", "flip", "garbage"])
def test_a_damaged_memory_counts_for_nothing_and_is_written_anew(home, file, damage):
    saved(home, file)
    memory = home / "cache" / "files"
    whole, other = memory.read_bytes(), digest("two").encode()
    memory.write_bytes(
        {
            "cut": whole[:-20],
            "flip": whole.replace(digest("one").encode(), other),
            "garbage": b"\xff\x00{}\n" * 99,
        }[damage]
    )
    saved(home, file)
    assert memory.read_bytes() == whole


def test_a_home_is_made_only_for_what_took_long(tmp_path, file, monkeypatch):
    saved(tmp_path / "none", file)
    assert not (tmp_path / "none").exists()
    monkeypatch.setattr(file_facts, "WORTH_A_HOME_BYTES", 3)
    saved(tmp_path / "none", file)
    assert (tmp_path / "none" / "cache" / "files").is_file()


def test_names_need_not_be_utf_8(home, file):
    other = file.with_name(os.fsdecode(b"caf\xe9"))
    other.write_text("one")
    settle()
    saved(home, other)
    with opened(other) as seen:
        assert FileFacts(home).sha256(other) == digest("one")
    assert seen == []
