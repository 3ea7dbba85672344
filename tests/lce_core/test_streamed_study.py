"""Steps of a study over a streamed data set: planned, computed, damaged, computed again."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from lce_core.corpora import _rows
from lce_core.errors import DataError
from lce_core.store import artifacts
from lce_core.store.artifacts import Store
from lce_core.store.steps import Step
from tests.lce_core.study.smoke_plans import new_runner
from tests.support.data.slimpajama import CORPUS, DOMAINS, small_shards
from tests.support.studies import SMOKE, compiled

STUDY = SMOKE | {
    "corpus": dict(CORPUS),
    "base_models": [{"name": "toy_llama", "steps": 2}],
    "methods": [{"name": "none"}],
    "benchmarks": [
        {"name": "perplexity", "profile": "tiny", "lengths": [64], "domains": [DOMAINS[0]]}
    ],
    "seeds": [0, 1],
}


def steps(folder: Path, **corpus: Any) -> dict[str, list[Step]]:
    plan = compiled(STUDY | {"corpus": {**CORPUS, **corpus}}, folder)
    found: dict[str, list[Step]] = {}
    for step in plan.steps.values():
        found.setdefault(step.kind, []).append(step)
    return found


@pytest.fixture
def text(tmp_path, monkeypatch) -> Path:
    return small_shards(tmp_path / "text", monkeypatch)


def ensure(store: Store, text: Path, *wanted: Step) -> list[str]:
    runner, _ = new_runner(store.home, text)
    return [runner.ensure(step) for step in wanted]


def test_the_shards_follow_the_text_and_what_is_read_of_it(text):
    first = steps(text)["tokens"][0].fingerprint
    assert steps(text, num_documents=50)["tokens"][0].fingerprint != first
    assert steps(text, held_out_percent=20)["tokens"][0].fingerprint != first
    (text / "b.jsonl").unlink()
    assert steps(text)["tokens"][0].fingerprint != first


def test_text_is_read_once_and_no_shard_is_hashed_again_when_it_is_committed(
    text, store, monkeypatch
):
    found = steps(text)
    hashed: list[str] = []

    def counting(path: Path) -> str:
        hashed.append(path.name)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(artifacts, "sha256_file", counting)
    assert ensure(store, text, *found["tokens"]) == ["computed"]
    assert set(hashed) == {"segment.json", "manifest.json"}
    (folder,) = (store.home / "artifacts" / "tokens").iterdir()
    record = store.record(found["tokens"][0])
    assert record is not None
    for name, entry in record.files.items():
        assert entry.sha256 == hashlib.sha256((folder / name).read_bytes()).hexdigest()

    away = text.with_name("away")
    text.rename(away)
    assert ensure(store, text, *found["rows"], *found["held_out"]) == ["computed"] * 3


def test_a_run_that_failed_goes_on_in_the_store(text, store, monkeypatch):
    (tokens,) = steps(text)["tokens"]
    with monkeypatch.context() as patch:
        patch.setattr(_rows, "MAX_DOCUMENT_BYTES", 60)  # of lines, which only b.jsonl has
        with pytest.raises(DataError):
            ensure(store, text, tokens)
    kept = list((store.home / "progress" / tokens.id).glob("[0-9]*/segment.json"))
    assert kept
    assert store.failures.of(tokens) is not None
    for file in kept:
        file.with_name("seconds.json").write_text('{"seconds": 1000}')
    times = {file.parent.name: file.stat().st_ino for file in kept}
    assert ensure(store, text, tokens) == ["computed"]
    record = store.record(tokens)
    assert record is not None
    assert record.seconds > 1000
    folder = store.path(tokens)
    assert {name: (folder / name / "segment.json").stat().st_ino for name in times} == times
    assert not (store.home / "progress" / tokens.id).exists()


@pytest.mark.parametrize("damage", ["short", "changed"])
def test_a_damaged_shard_in_the_store_is_tokenised_again(damage, text, store):
    found = steps(text)
    ensure(store, text, *found["tokens"], found["rows"][0])
    rows = (store.path(found["rows"][0]) / "rows.bin").read_bytes()
    shard = next(store.path(found["tokens"][0]).glob("00001/*.bin"))
    data = shard.read_bytes()
    shard.write_bytes(data[:-2] if damage == "short" else b"\xff" + data[1:])
    assert store.record(found["tokens"][0]) is None
    assert ensure(store, text, *found["tokens"]) == ["computed"]
    (store.path(found["rows"][0]) / "record.json").unlink()
    assert ensure(store, text, found["rows"][0]) == ["computed"]
    assert (store.path(found["rows"][0]) / "rows.bin").read_bytes() == rows
