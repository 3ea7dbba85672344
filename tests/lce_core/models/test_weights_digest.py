"""The identity of a folder of weights: every byte of every model file, and no other file."""

import hashlib
from pathlib import Path

import pytest

from lce_core.models import weights_digest
from lce_core.store.file_facts import FileFacts
from tests.support.file_events import opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Weights of 4 MiB, more than twice what was once read of a file."""
    folder = tmp_path_factory.mktemp("weights")
    (folder / "config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "model.safetensors").write_bytes(bytes(4 << 20))
    (folder / "README.md").write_text("no part of the model")
    return folder


def by_hand(folder: Path) -> str:
    names = ("chat_template.jinja", "config.json", "model.safetensors")
    lines = [f"{hashlib.sha256((folder / n).read_bytes()).hexdigest()} {n}\n" for n in names]
    return hashlib.sha256("".join(["weights 2\n", *lines]).encode()).hexdigest()


def test_the_digest_is_of_names_and_whole_contents(folder):
    assert weights_digest(folder) == by_hand(folder)
    (folder / "README.md").write_text("other words")
    assert weights_digest(folder) == by_hand(folder)


def test_weights_are_read_once_while_they_stay(folder, tmp_path, monkeypatch):
    # The files are seconds old: let them count as old enough to be remembered.
    monkeypatch.setattr("lce_core.store.file_facts.TICK_SECONDS", -1e6)
    with opened(folder) as first, FileFacts(tmp_path).in_use():
        digest = weights_digest(folder)
    names = [Path(path).name for path in first]
    assert sorted(names) == ["chat_template.jinja", "config.json", "model.safetensors"]
    with opened(folder) as second, FileFacts(tmp_path).in_use():
        assert weights_digest(folder) == digest
    assert second == []
