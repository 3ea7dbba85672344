"""Streamed documents are compared with the rows that were written, whatever the files' form;
reading on from any place must give what reading from the beginning gives there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lce_core.corpora import CORPORA, Block, Place, streamed
from lce_core.corpora.streamed import Streamed
from lce_core.errors import DataError, UnavailableError
from tests.support.data.slimpajama import CORPUS, rows, write, write_all
from tests.support.data.small_hub import COMMIT, small_hub


def corpus(**changes: Any) -> Streamed:
    found = CORPORA.parse({**CORPUS, **changes}, "test")
    assert isinstance(found, Streamed)
    return found


def blocks(folder: Path, start: Place | None = None, **changes: Any) -> list[Block]:
    return list(corpus(**changes).blocks({"text": folder}, start or Place()))


def texts(found: list[Block]) -> list[tuple[str, str]]:
    return [(d.text, d.domain) for block in found for d in block.documents]


def written(entries: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(entry["text"], entry["meta"]["redpajama_set_name"]) for entry in entries]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".json"])
def test_every_row_of_the_chosen_files_is_read_in_order(suffix, tmp_path):
    entries = rows(130, seed=0)
    write(tmp_path / f"train{suffix}", entries)
    write(tmp_path / f"test{suffix}", entries)
    (tmp_path / "train.empty.jsonl").write_bytes(b"")
    found = blocks(tmp_path, files=[f"train*{suffix}"])
    assert texts(found) == written(entries)
    names = [d.name for block in found for d in block.documents]
    assert names == [f"train{suffix}:{number}" for number in range(1, 131)]


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl.zst"])
def test_a_file_packed_in_parts_is_read_to_its_end(suffix, tmp_path):
    entries = rows(90, seed=0)
    parts = [write(tmp_path / f"{n}{suffix}", entries[n : n + 30]) for n in (0, 30, 60)]
    joined = b"".join(part.read_bytes() for part in parts)
    (tmp_path / f"train{suffix}").write_bytes(joined)
    assert texts(blocks(tmp_path, files=["train*"])) == written(entries)


def test_reading_goes_on_from_the_end_of_any_block(tmp_path, monkeypatch):
    entries = write_all(tmp_path)
    monkeypatch.setattr(streamed, "BLOCK_ROWS", 37)
    monkeypatch.setattr(streamed, "BLOCK_CHARACTERS", 4000)
    whole = blocks(tmp_path)
    assert texts(whole) == written(entries)
    assert len(whole) > 9
    for number, block in enumerate(whole):
        assert blocks(tmp_path, block.end) == whole[number + 1 :]


@pytest.mark.parametrize("number", [1, 120, 121, 1000])
def test_a_number_of_documents_is_read_and_no_more(number, tmp_path):
    entries = write_all(tmp_path)
    found = blocks(tmp_path, num_documents=number)
    assert texts(found) == written(entries[:number])
    assert blocks(tmp_path, found[-1].end, num_documents=number) == []


def test_the_digest_follows_the_files_and_is_the_address_of_a_hub(tmp_path):
    write_all(tmp_path)
    asked = corpus()
    first = asked.digest({"text": tmp_path})
    write(tmp_path / "b.jsonl", rows(5, seed=9))
    assert asked.digest({"text": tmp_path}) != first
    address = f"hub:cerebras/SlimPajama-627B@{'0' * 40}"
    assert asked.digest({"text": Path(address)}) == address  # asks no network


def test_a_hub_that_does_not_answer_is_unavailable(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(UnavailableError, match="a hub that does not list its files"):
        next(corpus().blocks({"text": Path(f"hub:nobody/nothing@{'0' * 40}")}, Place()))


FROM_A_HUB = """
import json, sys
from pathlib import Path
from lce_core.corpora import Place
from tests.lce_core.corpora.test_streamed import corpus
place = Place(*map(int, sys.argv[2:]))
for block in corpus().blocks({"text": Path(sys.argv[1])}, place):
    print(json.dumps([(d.name, d.text, d.domain) for d in block.documents]))
"""


@pytest.mark.slow
def test_a_hub_is_streamed_from_any_place_and_keeps_nothing_here(tmp_path):
    folder, home = tmp_path / "set", tmp_path / "home"
    for number, suffix in enumerate((".jsonl", ".parquet", ".jsonl", ".jsonl.zst")):
        write(folder / "train" / f"{number}{suffix}", rows(60, seed=number))
    local = [[[d.name, d.text, d.domain] for d in block.documents] for block in blocks(folder)]
    asked: list[str] = []
    with small_hub(folder, asked) as endpoint:
        answer = subprocess.run(
            [sys.executable, "-c", FROM_A_HUB, f"hub:own/set@{COMMIT}", "1", "20", "80"],
            env=os.environ
            | {
                "HF_ENDPOINT": endpoint,
                "HF_HUB_OFFLINE": "0",
                "HF_HOME": str(home),
                "NO_PROXY": "*",
            },
            capture_output=True,
            text=True,
        )
    assert answer.returncode == 0, answer.stderr
    found = [json.loads(line) for line in answer.stdout.splitlines()]
    assert found == [local[1][20:], *local[2:]]
    assert "train/0.jsonl" not in asked
    kept = [path for path in home.rglob("*") if path.is_file() and path.stat().st_size > 1000]
    assert not kept


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".jsonl.zst"])
def test_only_the_named_fields_are_read_and_keep_their_types(suffix, tmp_path):
    """`later` is null before it is text; a domain that looks like a date is text."""
    days = [f"2024-05-{day:02}" for day in range(1, 4)]
    entries = [
        {
            "text": "2024-01-01",
            "meta": {"day": days[number % 3]},
            "later": None if number < 2000 else {"a": 1},
        }
        for number in range(2010)
    ]
    write(tmp_path / f"a{suffix}", entries)
    found = blocks(tmp_path, domain_field="meta.day", domain_names=days)
    assert texts(found) == [(entry["text"], entry["meta"]["day"]) for entry in entries]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_a_field_whose_name_has_a_dot_comes_before_a_nested_one(suffix, tmp_path):
    write(tmp_path / f"a{suffix}", [{"a.b": "own", "a": {"b": "nested", "c": "other"}}])
    for field, text in (("a.b", "own"), ("a.c", "other")):
        found = blocks(tmp_path, text_field=field, domain_field=None, domain_names=["text"])
        assert texts(found) == [(text, "text")]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl.gz", ".jsonl.zst"])
def test_half_a_file_is_refused_by_name(suffix, tmp_path):
    file = write(tmp_path / f"a{suffix}", rows(300, seed=0))
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="a file that cannot be read") as raised:
        blocks(tmp_path)
    assert str(file) in str(raised.value)
