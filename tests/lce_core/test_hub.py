"""Data sets on the hub: a cache laid out as the hub client does, and a hub at a closed port."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.settings import DATA_FOLDER, named_folders
from lce_core.errors import SpecError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TEXTS = ["train.jsonl", "data/extra.jsonl", "notes.txt"]
ASK = f"""
import json
from pathlib import Path
from huggingface_hub.utils import filter_repo_objects
import lce_core.hub
from lce_core.benchmarks._data import DataSet
from lce_core.corpora import CORPORA, jsonl_folder

def data_set(name):
    data = DataSet("squad", ("*.parquet", "*.json"), "the authors")
    files = data.files({{"squad": Path(f"hub:own/{{name}}@{COMMIT}")}})
    return sorted(file.name for file in files)

def weights(name):
    patterns = ("*.safetensors",)
    return lce_core.hub.fetch(f"own/{{name}}", "{COMMIT}", patterns, patterns, "model").name

def corpus(name):
    asked = []
    def local_folder(place, patterns):
        asked.extend(patterns)
        return lce_core.hub.local_folder(place, patterns)
    jsonl_folder.local_folder = local_folder
    corpus = CORPORA.parse({{"name": "jsonl_folder", "folder": "text"}}, "test")
    folders = {{"text": Path(f"hub:own/{{name}}@{COMMIT}")}}
    splits = ("train", "held_out")
    found = [d.name for split in splits for d in corpus.documents(split, folders)]
    return sorted(found), sorted(filter_repo_objects({TEXTS!r}, allow_patterns=asked))

answers = {{}}
for kind, name in (
    (data_set, "whole"), (data_set, "part"), (data_set, "listed"), (data_set, "absent"),
    (weights, "weights"), (weights, "some-weights"), (corpus, "texts"),
):
    try:
        answers[name] = kind(name)
    except Exception as error:
        answers[name] = f"{{type(error).__name__}} {{error}}"
print(json.dumps(answers))
"""


def cached(home: Path, kind: str, name: str, files: list[str], text: str = "{}") -> Path:
    repository = home / "hub" / f"{kind}--own--{name}"
    for file in files:
        path = repository / "snapshots" / COMMIT / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return repository


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("home")
    cached(home, "datasets", "whole", ["dev.json"])
    for name, files in (("part", ["dev.json"]), ("listed", ["dev.json", "test.json"])):
        # The hub client keeps the listing that it began its download with.
        trees = cached(home, "datasets", name, files) / "trees"
        trees.mkdir()
        listing = {file: {"size": 2, "blob_id": "0" * 40} for file in ("dev.json", "test.json")}
        content = json.dumps({"format_version": 1, "files": listing})
        (trees / f"{COMMIT}.json").write_text(content, encoding="utf-8")
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    cached(home, "models", "weights", shards)
    cached(home, "models", "some-weights", shards[:1])
    cached(home, "datasets", "texts", TEXTS, '{"text": "one two"}\n')
    closed = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0", "HF_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=os.environ | closed, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_is_cached_as_a_whole_needs_no_network(answers):
    assert answers["whole"] == ["dev.json"]
    assert answers["listed"] == ["dev.json", "test.json"]
    assert answers["weights"] == COMMIT


@pytest.mark.parametrize("name", ["part", "some-weights"])
def test_what_a_download_left_in_part_is_not_taken_for_whole(answers, name):
    assert "neither in the hub cache nor reachable" in answers[name]


def test_text_at_the_root_of_a_data_set_is_part_of_the_corpus(answers):
    """The hub's own filter lets `*` span slashes, and `**/` demands one."""
    read, fetched = answers["texts"]
    assert read == ["data/extra.jsonl:1", "notes.txt", "train.jsonl:1"]
    assert fetched == sorted(TEXTS)


def test_a_data_set_out_of_reach_is_unavailable_and_says_what_to_do(answers):
    assert answers["absent"].startswith("UnavailableError data set 'squad'")
    for part in (f"own/absent@{COMMIT}", "get it from the authors", "--data-folder squad="):
        assert part in answers["absent"]


def test_an_address_stays_as_it_is_and_a_branch_is_refused():
    address = f"hub:own/whole@{COMMIT}"
    assert named_folders([f"squad={address}"], DATA_FOLDER) == {"squad": Path(address)}
    with pytest.raises(SpecError, match="40 hex digits of a commit"):
        named_folders(["squad=hub:rajpurkar/squad@main"], DATA_FOLDER)
