"""RULER: prompts are taken apart again with expressions of their own; scores by hand."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.benchmarks.ruler import NEW_TOKENS, TASKS, _vocabulary
from lce_core.benchmarks.ruler._niah import split_sentences
from lce_core.benchmarks.ruler._vocabulary import pair, word_list
from lce_core.contracts.benchmark_cases import STORY, Streams
from lce_core.errors import DataError, UnavailableError
from lce_core.evaluation.metrics import string_match_all, string_match_part
from tests.support.ruler.prompts import (
    BPE,
    BYTES,
    prompts_of,
    request_for,
    ruler,
    stand_in_data,
    text_of,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    return stand_in_data(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize(
    ("answer", "references", "in_all", "in_part"),
    [
        (" 123 and 456.", ["123", "456"], 1.0, 1.0),
        ("only 456", ["123", "456", "789", "1"], 0.25, 1.0),
        ("PARIS", ["paris"], 1.0, 1.0),
        ("paris", ["Paris"], 1.0, 1.0),
        ("new\x00york", ["new\nyork"], 1.0, 1.0),
        ("new york", ["new\nyork"], 0.0, 0.0),
        ("", ["a", "b"], 0.0, 0.0),
    ],
)
def test_string_matches_are_shares_of_substrings(answer, references, in_all, in_part):
    assert string_match_all(answer, references) == in_all
    assert string_match_part(answer, references) == in_part


def test_documents_hold_the_answer_at_the_recorded_depth(folders):
    for prompt in prompts_of(request_for("qa_1", 1600, folders)):
        shown = re.findall(r"Document \d+:\n(.*)", text_of(prompt))
        gold = [at for at, text in enumerate(shown) if prompt.references[0] in text]
        assert [100 * at / (len(shown) - 1) for at in gold] == pytest.approx([prompt.depth])
        assert str(prompt.cluster).startswith("Article")
    for prompt in prompts_of(request_for("qa_2", 1600, folders)):
        row = str(prompt.references[0]).split()[1]
        own = re.findall(rf"Document \d+:\nTown {row}-(\d)", text_of(prompt))
        assert sorted(own) == [str(part) for part in range(10)]
        assert prompt.cluster == f"Town {row}-3"


def test_per_sample_permutations_vary_the_gold_depth_and_fixed_ones_do_not(folders):
    request = request_for("qa_1", 1200, folders)
    for kind, least, most in (("fixed", 1, 1), ("per_sample", 5, 12)):
        prompts = prompts_of(request, permutations=kind, sizes="v1", num_samples=12)
        assert least <= len({round(prompt.depth or 0) for prompt in prompts}) <= most


def test_faithful_asks_the_first_questions_and_clean_any_but_the_same_at_all_lengths(folders):
    def asked(profile: str, length: int) -> list[str]:
        request = request_for("qa_1", length, folders)
        return [prompt.reference for prompt in prompts_of(request, profile=profile, num_samples=6)]

    first = [f"code 0{n}" for n in range(4)] + ["code 10", "code 11"]
    assert [one.split(" | ")[0] for one in asked("faithful", 1600)] == first
    assert asked("clean", 1600) == asked("clean", 900)
    assert len({one[5] for one in asked("clean", 900)}) > 2


def test_data_sets_give_at_most_as_many_samples_as_questions(folders):
    assert len(prompts_of(request_for("qa_2", 1600, folders), num_samples=500)) == 8


def test_pairs_are_numbered_in_the_order_of_all_pairs_sorted():
    hyphened = [word for word in word_list("adjective") if "-" in word]
    first = sorted({word.split("-")[0] for word in hyphened} & {*word_list("adjective")})
    assert first == ["blue", "high", "old", "teeny", "wide"]  # whose pairs stand among others
    before = sum(word < "blue" for word in word_list("adjective")) * 6782
    family = sorted(f"{one}-{noun}" for one in ("blue", "blue-eyed") for noun in word_list("noun"))
    assert [pair(before + number) for number in range(len(family))] == family
    places = [0, 6781, 6782, before - 1, before + len(family), 6782 * 910 - 1]
    found = [pair(place) for place in places]
    assert found == sorted(found)
    assert (found[0], found[-1]) == ("Early-ATM", "zonked-zucchini")


def test_sentences_end_at_marks_and_not_at_abbreviations():
    text = (
        'He met Mr. Hall. "Why?" she said. J. Smith paid 3.5 p.m. rates (really!) Then, e.g. Ann'
        " left."
    )
    sentences = split_sentences(text)
    assert sentences == [
        "He met Mr. Hall.",
        '"Why?" she said.',
        "J. Smith paid 3.5 p.m. rates (really!)",
        "Then, e.g. Ann left.",
    ]
    assert " ".join(sentences) == text


def test_tasks_ask_for_the_data_they_read_and_for_no_other(folders, tmp_path):
    for task, name in (("niah_single_2", "essays"), ("qa_1", "squad"), ("qa_2", "hotpotqa")):
        others = {other: folder for other, folder in folders.items() if other != name}
        assert ruler().digest(task, folders)
        with pytest.raises(UnavailableError, match=name):
            ruler().digest(task, others)
    assert ruler().digest("vt", {}) is None
    (tmp_path / "dev-v2.0.json").write_text('{"data": [{"title": "x"}]}', encoding="utf-8")
    with pytest.raises(DataError, match=r"dev-v2\.0\.json: got KeyError 'paragraphs'"):
        prompts_of(request_for("qa_1", 900, {"squad": tmp_path}))


def test_held_out_text_takes_the_place_of_essays():
    stream = np.frombuffer((STORY * 20).encode(), dtype=np.uint8).astype(np.uint32)
    request = request_for(
        "niah_single_2", 1500, {}, tokenizer=BYTES, held_out=Streams({"prose": stream})
    )
    (prompt, *_) = prompts_of(request, haystack="held_out")
    text = BYTES.decode(prompt.ids)
    assert text.count("Rain fell on the hills.") > 5
    other = replace(request, held_out=Streams({"prose": stream[::-1].copy()}))
    assert BYTES.decode(prompts_of(other, haystack="held_out")[0].ids) != text


@given(
    task=st.sampled_from(TASKS),
    length=st.integers(1, 2600),
    profile=st.sampled_from(["clean", "faithful"]),
    tokenizer=st.sampled_from([BYTES, BPE]),
)
def test_prompts_fit_their_length_or_name_the_minimum(folders, task, length, profile, tokenizer):
    request = request_for(task, length, folders, tokenizer=tokenizer)
    reason, prompts = "", ()
    try:
        prompts = prompts_of(request, profile=profile)
    except UnavailableError as error:
        reason = str(error)
    if reason:
        assert f"{length} tokens, " in reason
        assert task in reason
        minimum = int(reason.split("at least ")[1].split()[0])
        assert length < minimum < 14_000
        return
    reserved = 0 if (task, profile) == ("fwe", "faithful") else NEW_TOKENS[task]
    uncounted = 4 if (task, profile) == ("vt", "faithful") else 0  # between example and task
    assert all(len(prompt.ids) + reserved <= length + uncounted for prompt in prompts)
    # RULER's repetitions and units change at 4096; small collections run out of documents.
    if 2 * length < 4096 and not task.startswith("qa"):
        again = prompts_of(replace(request, eval_length=2 * length), profile=profile)
        assert min(len(p.ids) for p in again) > max(len(p.ids) for p in prompts)


def test_words_of_another_release_of_wonderwords_make_the_cell_unavailable(tmp_path, monkeypatch):
    # The words are in no id, so nothing else would tell prompts of another list apart.
    assets = tmp_path / "assets"
    assets.mkdir()
    words = [*_vocabulary.word_list("noun")[:-1], "zymurgist"]
    (assets / "nounlist.txt").write_text("\n".join(words), encoding="utf-8")
    monkeypatch.setattr(_vocabulary, "files", lambda package: tmp_path)
    with pytest.raises(UnavailableError, match=r"6,782 words .* `pip install wonderwords==3.0.1"):
        _vocabulary.word_list.__wrapped__("noun")
