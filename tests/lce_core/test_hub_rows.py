"""Rows from a hub on loopback, and readers of fetched rows against those of the authors' files; a
cache laid out as the hub client does, and a hub at a closed port."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from flows.settings import DATA_FOLDER, named_folders
from lce_core.benchmarks import longbench
from lce_core.benchmarks._data import ESSAYS, DataSet, Table, essays
from lce_core.benchmarks.ruler import _documents as documents
from lce_core.benchmarks.short_context import data as short_context
from lce_core.corpora import CORPORA
from lce_core.errors import DataError, SpecError, UnavailableError
from lce_core.hub import RowsAddress, _reading, rows_address
from tests.support.data.fixture_data import fixture_folders
from tests.support.data.short_context_rows import made_up, subjects
from tests.support.data.small_hub import COMMIT, small_hub
from tests.support.ruler.prompts import stand_in_data

SET = f"datasets:own/set@{COMMIT}"
ROWS: Mapping[tuple[str, str], list[dict[str, Any]]] = {
    ("first", "test"): [{"text": f"line\u2028{n}\n", "answers": [str(n), "ö"]} for n in range(5)],
    ("first", "train"): [{"text": "shown", "answers": []}],
    ("second", "test"): [{"text": "alone", "answers": ["x"]}],
}
FETCH = """
import os, sys, urllib.request
from pathlib import Path
from lce.cli import app
from typer.testing import CliRunner
for address in sys.argv[1:]:
    if address.startswith("create "):
        Path(address.removeprefix("create ")).touch()
    elif address == "mark":
        urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/resolve/x/.gitattributes").read()
    else:
        done = CliRunner().invoke(app, ["fetch", address])
        error = done.exception
        print(f"{type(error).__name__}: {error}" if error else done.output)
"""
"""Fetches addresses in turn; `mark` leaves a mark among the files that the hub was asked for."""


def write_table(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), file)


def configured(folder: Path, declared: int = 1) -> None:
    """Write the set in the form of a repository whose card lists configurations."""
    card = f"""---
configs:
- config_name: first
  data_files:
  - {{split: test, path: "first/held-*"}}
  - {{split: train, path: first/shown.parquet}}
- config_name: second
  data_files:
  - {{split: test, path: second.parquet}}
dataset_info:
- config_name: second
  features:
  - {{name: text, dtype: string}}
  - {{name: answers, list: string}}
  splits:
  - {{name: test, num_examples: {declared}}}
---
"""
    first = ROWS["first", "test"]
    write_table(folder / "first" / "held-0.parquet", first[:3])
    write_table(folder / "first" / "held-1.parquet", first[3:])
    write_table(folder / "first" / "shown.parquet", ROWS["first", "train"])
    write_table(folder / "second.parquet", ROWS["second", "test"])
    (folder / "README.md").write_text(card, encoding="utf-8")


def converted(folder: Path) -> None:
    """Write the set in the form of the branch refs/convert/parquet."""
    for (config, split), rows in ROWS.items():
        write_table(folder / config / split / "0000.parquet", rows[:3])
        if rows[3:]:
            write_table(folder / config / split / "0001.parquet", rows[3:])
    (folder / ".gitattributes").write_text("", encoding="utf-8")


def run(endpoint: str, home: Path, code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ
        | {
            "HF_ENDPOINT": endpoint,
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(home),
            "COLUMNS": "1000",
            "TERM": "dumb",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def fetched(home: Path, monkeypatch: pytest.MonkeyPatch, config: str, split: str) -> Path:
    monkeypatch.setattr(constants, "HF_HOME", str(home))
    return RowsAddress("own/set", COMMIT, config, split).fetched()


@pytest.fixture
def stored(tmp_path, monkeypatch) -> Any:
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "home"))

    def store(config: str, split: str, rows: list[dict[str, Any]]) -> Path:
        file = RowsAddress("own/set", COMMIT).file(config, split)
        file.parent.mkdir(parents=True)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        file.write_text(lines, encoding="utf-8")
        return Path(SET)

    return store


@pytest.mark.slow
@pytest.mark.parametrize("write", [configured, converted])
def test_every_split_is_fetched_once_and_then_needs_no_hub(write, tmp_path, monkeypatch):
    folder, home = tmp_path / "set", tmp_path / "home"
    write(folder)
    (folder / ".gitattributes").touch()
    asked: list[str] = []
    with small_hub(folder, asked) as endpoint:
        said = run(endpoint, home, FETCH, f"{SET}:second:test", "mark", SET)
    assert not any(name.startswith("first") for name in asked[: asked.index(".gitattributes")])
    for (config, split), rows in ROWS.items():
        file = fetched(home, monkeypatch, config, split)
        assert rows_of(file) == rows
        assert f"{SET}: {file}\n" in said
    if write is configured:
        said = run("http://127.0.0.1:9", home, FETCH, f"{SET}:first:test", SET)
        again, _, closed = said.partition("UnavailableError: ")
        assert str(fetched(home, monkeypatch, "first", "test")) in again
        assert "a connection to the hub" in closed


@pytest.mark.slow
def test_a_wrong_address_an_incomplete_split_and_a_script_are_refused(tmp_path):
    folder = tmp_path / "set"
    configured(folder, declared=2)
    steps = [f"{SET}:third", f"{SET}:first:dev", f"{SET}:second:test"]
    with small_hub(folder, []) as endpoint:
        script = f"create {folder / 'set.py'}"
        answers = run(endpoint, tmp_path / "home", FETCH, *steps, script, SET).splitlines()
    for answer, kind, says in zip(
        answers,
        ("SpecError", "SpecError", "DataError", "SpecError"),
        ("first, second", "test, train", "got 1 rows; expected 2", "refs/convert/parquet"),
        strict=True,
    ):
        assert answer.startswith(kind)
        assert says in answer
    assert not RowsAddress("own/set", COMMIT).file("second", "test").exists()


def test_an_error_of_datasets_without_a_message_is_reported():
    address = RowsAddress("own/set", COMMIT)
    with pytest.raises(DataError, match="rows that cannot be read"), _reading(address):
        raise ValueError


STREAM = """
import os, sys
from pathlib import Path
from lce_core.corpora import CORPORA
corpus = CORPORA.parse({"name": "streamed", "held_out_percent": 50}, "test")
folders = {"text": Path(sys.argv[1])}
for split in ("train", "held_out"):
    for document in corpus.documents(split, folders):
        print(split, document.name, ascii(document.text))
sys.stdout.flush()
os._exit(0)
"""
"""Prints the documents of an address. It skips the interpreter's own exit, which a native thread
that outlived the last row once aborted."""


@pytest.mark.slow
def test_a_corpus_streams_one_split_of_a_configuration(tmp_path):
    folder, address = tmp_path / "set", f"{SET}:first:test"
    configured(folder)
    with small_hub(folder, []) as endpoint:
        answer = run(endpoint, tmp_path / "home", STREAM, address)
    corpus = CORPORA.parse({"name": "streamed", "held_out_percent": 50}, "test")
    names = [
        f"first/held-{part}.parquet:{n}" for part, n in ((0, 1), (0, 2), (0, 3), (1, 1), (1, 2))
    ]
    expected = {
        f"{corpus.split(name)} {name} {row['text']!a}"  # type: ignore[attr-defined]
        for name, row in zip(names, ROWS["first", "test"], strict=True)
    }
    assert set(answer.splitlines()) == expected
    assert corpus.digest({"text": Path(address)}) == address
    with pytest.raises(SpecError, match="40 hex digits of a commit"):
        list(corpus.documents("train", {"text": Path(f"{SET}::test")}))


def test_a_folder_corpus_reads_fetched_rows(stored):
    rows = [{"text": f"text {n}", "domain": "text"} for n in range(40)]
    stored("default", "train", rows)
    folders = {"text": Path(f"{SET}:default:train")}
    corpus = CORPORA.parse({"name": "jsonl_folder", "held_out_percent": 30}, "test")
    parts = [list(corpus.documents(split, folders)) for split in ("train", "held_out")]
    assert all(parts)
    assert sorted(d.text for part in parts for d in part) == sorted(row["text"] for row in rows)
    assert len(corpus.digest(folders)) == 64


def test_a_fetched_task_of_longbench_is_the_file_with_these_rows(stored, tmp_path):
    task = "qasper"
    folder = fixture_folders([longbench.data_set(task)], tmp_path)
    rows = rows_of(folder["longbench"] / f"{task}.jsonl")
    place = {"longbench": stored(task, "test", rows)}
    found = longbench.longbench_rows(task, place, 4)
    assert found == longbench.longbench_rows(task, folder, 4)
    (file,) = longbench.data_set(task).files(place)
    (folder["longbench"] / f"{task}.jsonl").write_bytes(file.read_bytes())
    assert longbench.data_set(task).digest(place) == longbench.data_set(task).digest(folder)
    assert longbench.data_set(task).recorded_name(place) == "longbench"
    with pytest.raises(UnavailableError, match=f"run `lce fetch {SET}:trec:test`"):
        longbench.longbench_rows("trec", place, 4)
    with pytest.raises(UnavailableError, match="got configuration 'trec'; expected"):
        longbench.longbench_rows(task, {"longbench": Path(f"{SET}:trec")}, 4)


def test_questions_without_an_answer_are_left_out_of_squads_rows(stored):
    row = {"title": "t", "context": "c", "question": "q", "answers": {"text": ["a"]}}
    stored("squad_v2", "validation", [row, row | {"answers": {"text": []}}] * 5928)
    found = documents.read_squad({"squad": Path(f"{SET}:squad_v2")})
    assert {(question.text, question.answers) for question in found.questions} == {("q", ("a",))}


def test_rows_of_hotpotqa_are_the_authors_file(stored, tmp_path, monkeypatch):
    folder = stand_in_data(tmp_path)["hotpotqa"]
    (file,) = folder.glob("hotpot_*.json")
    authors = json.loads(file.read_text(encoding="utf-8"))
    rows = [
        row
        | {
            "context": {
                "title": [title for title, _ in row["context"]],
                "sentences": [lines for _, lines in row["context"]],
            },
            "supporting_facts": {
                "title": [title for title, _ in row["supporting_facts"]],
                "sent_id": [number for _, number in row["supporting_facts"]],
            },
        }
        for row in authors
    ]
    place = {"hotpotqa": stored("distractor", "validation", rows)}
    monkeypatch.setitem(documents.NUM_QUESTIONS, "hotpotqa", len(authors))
    found = documents.read_hotpot(place)
    assert found.questions
    assert found == documents.read_hotpot({"hotpotqa": folder})


@pytest.mark.parametrize("task", ["mmlu", "arc_challenge", "piqa"])
def test_rows_of_short_tasks_are_those_of_the_hubs_files(task, stored, tmp_path):
    folders = made_up(task, tmp_path / "files")
    short = short_context.TASKS[task]
    place = {name: Path(SET) for name in folders}
    asked = [
        (split, table.config, table.config if task == "mmlu" else None)
        for split, data_set in short.splits.items()
        for table in data_set.tables
    ]
    parts = [short_context.read_split(short, split, folders, one) for split, _, one in asked]
    for (split, config, _), rows in zip(asked, parts, strict=True):
        stored(config or "default", split, rows)
    assert parts == [short_context.read_split(short, split, place, one) for split, _, one in asked]


def test_the_subjects_of_mmlu_are_those_of_the_harness():
    assert sorted(short_context.MMLU_SUBJECTS) == subjects()


def test_essays_are_the_column_text_of_any_split(stored):
    stored("default", "train", [{"text": "one "}, {"text": "two"}])
    assert essays({"essays": Path(f"{SET}:default:train")}) == "one two"
    with pytest.raises(UnavailableError, match=f"add them, for example {SET}:default:test"):
        ESSAYS.files({"essays": Path(SET)})


def test_files_that_are_published_without_rows_need_a_folder():
    files = DataSet("letters", ("*.txt",), "the authors")
    with pytest.raises(UnavailableError, match="give `--data-folder letters=FOLDER`"):
        files.files({"letters": Path(SET)})
    rows = DataSet("letters", ("*.txt",), "the authors", (Table("a", "test"),))
    assert not rows.is_in({"letters": Path(SET)})


def test_addresses_have_a_commit_and_optional_parts():
    for parts in ("", ":rc.nocontext", ":rc.nocontext:validation"):
        assert str(rows_address(Path(SET + parts))) == SET + parts
    for address in (f"{SET}:a:b", f"hub:own/whole@{COMMIT}"):
        assert named_folders([f"squad={address}"], DATA_FOLDER) == {"squad": Path(address)}
    for wrong in ("datasets:own/set@main:a", f"{SET}:a:b:c", "datasets:set", f"{SET}::test"):
        with pytest.raises(SpecError, match="print it with `git ls-remote "):
            rows_address(Path(wrong))
    assert rows_address(Path("/data/set")) is None


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
    found: dict[str, Any] = json.loads(run("http://127.0.0.1:9", home, ASK))
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


def test_a_branch_is_refused():
    with pytest.raises(SpecError, match="40 hex digits of a commit"):
        named_folders(["squad=hub:rajpurkar/squad@main"], DATA_FOLDER)
