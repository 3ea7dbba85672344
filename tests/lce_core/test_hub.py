"""Data sets on the hub: a cache laid out as the hub client does, and a hub that is a closed port.

Nothing is mocked; the client's own cache look-up finds the files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.settings import DATA_FOLDER, named_folders
from lce_core.errors import SpecError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ADDRESS = f"hub:rajpurkar/squad@{COMMIT}"
ASK = """
import sys
from pathlib import Path
from lce_core.benchmarks._data import DataSet
data = DataSet("squad", ("*.parquet", "*.json"), "the authors")
try:
    print(*[file.name for file in data.files({"squad": Path(sys.argv[1])})])
except Exception as error:
    print(type(error).__name__, error)
"""


def ask(home: Path, endpoint: str = "http://127.0.0.1:9") -> str:
    closed = {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "HF_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", ASK, ADDRESS],
        env=os.environ | closed,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_a_cached_data_set_needs_no_network(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "datasets--rajpurkar--squad" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "dev.json").write_text("{}", encoding="utf-8")
    assert ask(tmp_path) == "dev.json"


@pytest.mark.slow
def test_a_data_set_of_which_a_download_left_a_part_is_not_taken_for_whole(tmp_path: Path) -> None:
    """The hub client keeps the listing that it began its download with."""
    repository = tmp_path / "hub" / "datasets--rajpurkar--squad"
    folder = repository / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "dev.json").write_text("{}", encoding="utf-8")
    (repository / "trees").mkdir()
    listing = {name: {"size": 2, "blob_id": "0" * 40} for name in ("dev.json", "test.json")}
    (repository / "trees" / f"{COMMIT}.json").write_text(
        json.dumps({"format_version": 1, "files": listing}), encoding="utf-8"
    )
    assert "neither in the hub cache nor reachable" in ask(tmp_path)
    (folder / "test.json").write_text("{}", encoding="utf-8")
    assert ask(tmp_path) == "dev.json test.json"


@pytest.mark.slow
def test_text_at_the_root_of_a_data_set_is_part_of_the_corpus(tmp_path: Path) -> None:
    """The hub's own filter lets `*` span slashes, and `**/` demands one."""
    folder = tmp_path / "hub" / "datasets--rajpurkar--squad" / "snapshots" / COMMIT
    (folder / "data").mkdir(parents=True)
    names = ["train.jsonl", "data/extra.jsonl", "notes.txt"]
    for name in names:
        (folder / name).write_text('{"text": "one two"}\n', encoding="utf-8")
    asked = f"""
from pathlib import Path
from huggingface_hub.utils import filter_repo_objects
import lce_core.hub
from lce_core.corpora import CORPORA, jsonl_folder
asked = []
def local_folder(place, patterns):
    asked.extend(patterns)
    return lce_core.hub.local_folder(place, patterns)
jsonl_folder.local_folder = local_folder
corpus = CORPORA.parse({{"name": "jsonl_folder", "folder": "text"}}, "test")
folders = {{"text": Path("{ADDRESS}")}}
found = [d.name for split in ("train", "held_out") for d in corpus.documents(split, folders)]
print(*sorted(found))
print(*sorted(filter_repo_objects({names!r}, allow_patterns=asked)))
"""
    offline = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", asked], env=os.environ | offline, capture_output=True, text=True
    )
    assert done.stderr == ""
    read, fetched = done.stdout.splitlines()
    assert read.split() == ["data/extra.jsonl:1", "notes.txt", "train.jsonl:1"]
    assert fetched.split() == sorted(names)


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_a_cached_part_of_some_weights_is_not_taken_for_them(tmp_path: Path, whole: bool) -> None:
    folder = tmp_path / "hub" / "models--some--model" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    for number in (1, 2)[: 1 + whole]:
        (folder / f"model-0000{number}-of-00002.safetensors").write_bytes(b"")
    asked = f"""
from lce_core.hub import fetch
patterns = ("*.safetensors",)
print(fetch("some/model", "{COMMIT}", patterns, patterns, "model").name)
"""
    closed = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", asked], env=os.environ | closed, capture_output=True, text=True
    )
    assert (done.stdout.strip() == COMMIT) == whole
    assert ("neither in the hub cache nor reachable" in done.stderr) != whole


@pytest.mark.slow
def test_a_data_set_out_of_reach_is_unavailable_within_seconds(tmp_path: Path) -> None:
    start = time.monotonic()
    answer = ask(tmp_path)
    assert time.monotonic() - start < 20
    assert answer.startswith("UnavailableError data set 'squad'")
    for part in (f"rajpurkar/squad@{COMMIT}", "get it from the authors", "--data-folder squad="):
        assert part in answer


def test_an_address_stays_as_it_is_and_a_branch_is_refused() -> None:
    assert named_folders([f"squad={ADDRESS}"], DATA_FOLDER) == {"squad": Path(ADDRESS)}
    with pytest.raises(SpecError, match="40 hex digits of a commit"):
        named_folders(["squad=hub:rajpurkar/squad@main"], DATA_FOLDER)
