"""The identity of a folder of weights: every byte of every model file, and nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.models import weights_digest
from lce_core.store.file_facts import FileFacts
from tests.support.file_events import opened

MIB = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of 4 MiB, more than twice what was once read of a file."""
    folder = tmp_path_factory.mktemp("weights")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(4 * MIB))
    (folder / "README.md").write_text("no part of the model")
    return folder


def by_hand(folder: Path) -> str:
    names = ("config.json", "model.safetensors")
    lines = [f"{hashlib.sha256((folder / n).read_bytes()).hexdigest()} {n}\n" for n in names]
    return hashlib.sha256("".join(["weights 2\n", *lines]).encode()).hexdigest()


def test_the_digest_is_of_names_and_whole_contents(folder: Path) -> None:
    assert weights_digest(folder) == by_hand(folder)


@given(st.integers(0, 4 * MIB - 1), st.integers(1, 255))
def test_any_byte_of_the_weights_counts(folder: Path, place: int, value: int) -> None:
    before = weights_digest(folder)
    with (folder / "model.safetensors").open("r+b") as weights:
        weights.seek(place)
        weights.write(bytes([value]))
        weights.flush()
        changed = weights_digest(folder)
        weights.seek(place)
        weights.write(b"\0")
    assert changed != before
    assert weights_digest(folder) == before


def test_what_is_no_model_file_does_not_count(folder: Path) -> None:
    before = weights_digest(folder)
    (folder / "README.md").write_text("other words")
    assert weights_digest(folder) == before


def test_weights_are_read_once_while_they_stay(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The files are seconds old: let them count as old enough to be remembered.
    monkeypatch.setattr("lce_core.store.file_facts.TICK_SECONDS", -1e6)
    with opened(folder) as first, FileFacts(tmp_path).in_use():
        digest = weights_digest(folder)
    assert sorted(Path(path).name for path in first) == ["config.json", "model.safetensors"]
    with opened(folder) as second, FileFacts(tmp_path).in_use():
        assert weights_digest(folder) == digest
    assert second == []
