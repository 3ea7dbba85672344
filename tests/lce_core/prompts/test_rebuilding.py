"""The prompts of a finished cell are those that its model was given, or nothing is shown.

The input of a real study's decoder was noted; a cache that knows none of it rebuilds the prompts.
"""

import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from flows.settings import make_execution
from lce_core.benchmarks._prompted import cache
from lce_core.benchmarks._prompted.cache import PromptCache, read_prompts
from lce_core.errors import DataError, SpecError, StoreError, UnavailableError
from lce_core.prompts import places_of, readable_sample, rebuilt_cell
from lce_core.runners import Runner
from lce_core.store.artifacts import Store
from lce_core.store.steps import Step
from tests.support.asked_cells import LENGTH, AskedStudy, rewrite_record

NUM_BYTES = 256
CELLS = (
    ("needle", "single"), ("passkey", "single"),
    ("ruler", "niah_multiquery"), ("ruler", "niah_multikey_2"),
)  # fmt: skip


@pytest.fixture(scope="module")
def study(made_once) -> AskedStudy:
    return AskedStudy.of(made_once)


@pytest.fixture(autouse=True)
def _nothing_in_memory(monkeypatch) -> None:
    monkeypatch.setattr(cache, "CACHE", PromptCache(max_tokens=1 << 20))


@pytest.fixture
def copied(study, tmp_path) -> AskedStudy:
    shutil.copytree(study.home, tmp_path / "home")
    return AskedStudy(tmp_path / "home", study.recorded)


def spelled(ids: list[int]) -> str:
    """What the toy model's tokens say, by the rule that their ids follow."""
    found, text = [], bytearray()
    for token in ids:
        if token < NUM_BYTES:
            text.append(token)
            continue
        found.append(text.decode(errors="replace"))
        text = bytearray()
        key = token - NUM_BYTES
        found.append(f"<key-{key // 16}-{key % 16:02d}>" if key < 128 else f"<query-{key - 128}>")
    return "".join([*found, text.decode(errors="replace")])


@pytest.mark.parametrize(("benchmark", "task"), CELLS)
def test_prompts_are_those_that_the_decoder_was_given_and_their_text_says_the_same(
    study, benchmark, task
):
    cell = study.cell(benchmark, task)
    found = rebuilt_cell(Store(study.home), cell)
    given = study.recorded[cell]
    assert len(given) == sum(map(len, found.prompts)) > 1
    assert [prompt.ids.tolist() for prompts in found.prompts for prompt in prompts] == given
    assert {len(prompts) for prompts in found.prompts} == {4 if task == "niah_multiquery" else 1}
    sample = readable_sample(found, len(found.samples) - 1)
    assert sample.inserted_every is None
    references = str(sample.sample["reference"]).split(" | ")
    for prompt, reference in zip(sample.prompts, references, strict=True):
        assert prompt.text == spelled(prompt.ids)
        assert {prompt.text[first:last] for first, last in prompt.places} == {reference}
        assert prompt.first_token is not None
        assert len(spelled(prompt.ids[: prompt.first_token])) == prompt.places[0][0]
        assert prompt.is_exact
    assert sample.sample["prompt_end"] == spelled(sample.prompts[-1].ids)[-200:]
    if benchmark == "needle":
        share = sample.prompts[0].first_token or 0
        assert share / (LENGTH - 3) == pytest.approx(sample.sample["depth"] / 100, abs=0.01)


def test_a_computed_cell_keeps_its_prompts_in_the_store(copied, monkeypatch):
    monkeypatch.setattr(cache, "CACHE", PromptCache(max_tokens=0, dear_seconds=0))
    store, cell = Store(copied.home), copied.cell("passkey")
    folder, record = next(one for one in store.records() if one[1].fingerprint.startswith(cell))
    shutil.rmtree(folder)
    step = Step(**{field.name: getattr(record, field.name) for field in fields(Step)})
    options = make_execution({"home": copied.home, "device": "cpu"})
    assert Runner(store, options, lambda event: None).ensure(step) == "computed"
    (file,) = store.prompts.iterdir()
    found = read_prompts(file) or ()
    assert [prompt.ids.tolist() for prompt in found] == copied.recorded[cell]


def changed(home: Path, cell: str, place: tuple[str, ...], value: Any) -> None:
    def change(record: dict[str, Any]) -> None:
        part = record
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = value

    rewrite_record(home, cell, change)


def test_a_cell_whose_prompts_are_not_those_of_its_record_is_refused(copied):
    store = Store(copied.home)
    needle, passkey = copied.cell("needle"), copied.cell("passkey")
    changed(copied.home, passkey, ("result", "prompts_sha256"), "0" * 64)
    with pytest.raises(DataError, match=r"sha256 \w{12}, not 000000000000"):
        rebuilt_cell(store, passkey)
    changed(copied.home, passkey, ("spec", "seed"), 5)
    with pytest.raises(DataError, match=r"sample 0 with the reference '[0-9]+', not '[0-9]+'"):
        rebuilt_cell(store, passkey)
    (samples,) = copied.home.glob(f"artifacts/cell/*-{passkey}/samples.parquet")
    samples.write_bytes(samples.read_bytes() + b" ")
    with pytest.raises(StoreError, match="changed after they were committed"):
        rebuilt_cell(store, passkey)

    (stream,) = copied.home.glob("artifacts/held_out/*/stream-0.bin")
    stream.write_bytes(stream.read_bytes()[:-4] + b"abcd")
    with pytest.raises(UnavailableError, match="missing from the store, or damaged"):
        rebuilt_cell(store, needle)
    shutil.rmtree(stream.parent)
    with pytest.raises(UnavailableError, match="run the study, which builds"):
        rebuilt_cell(store, needle)
    changed(copied.home, needle, ("spec", "benchmark", "version"), 99)
    changed(copied.home, needle, ("environment", "git"), {"commit": "ab" * 20})
    changed(copied.home, needle, ("environment", "libraries", "numpy"), "1.0.0")
    with pytest.raises(SpecError, match=r"VERSION 99(.|\n)*commit abababababab, numpy 1\.0\.0"):
        rebuilt_cell(store, needle)


def test_a_cell_without_prompts_and_a_sample_that_is_not_there_are_refused(study):
    store = Store(study.home)
    with pytest.raises(SpecError, match="perplexity, which builds no prompts"):
        rebuilt_cell(store, study.cell("perplexity"))
    with pytest.raises(SpecError, match="0 to 2"):
        readable_sample(rebuilt_cell(store, study.cell("passkey")), 3)
    for cell in ("0" * 12, "../../etc", ""):
        with pytest.raises(SpecError, match="the id of a finished cell"):
            rebuilt_cell(store, cell)


@pytest.mark.parametrize(
    ("answers", "text", "expected"),
    [
        (["12"], "12 is 12, not 123 or 312.", ["12", "12"]),
        (["<key-0-01>"], "abc<key-0-01>def", ["<key-0-01>"]),
        (["a", "a b"], "see a b", ["a b"]),
        (["", " "], "nothing", []),
        (["(x"], "f(x) (x", ["(x", "(x"]),
    ],
)
def test_answers_are_found_as_words_of_their_own(answers, text, expected):
    assert [text[first:last] for first, last in places_of(answers, text)] == expected
