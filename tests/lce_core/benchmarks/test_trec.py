"""TREC's questions: names of classes against the published files, and files that are damaged."""

import collections
import hashlib

import pytest

from lce_core.benchmarks.many_shot.trec import CLASSES, LABELS, trec_questions
from lce_core.errors import DataError, UnavailableError
from tests.support.data.subsets import state_rows


def test_the_published_files_have_exactly_the_known_codes(test_data):
    counts = {}
    for name, md5 in (
        ("train.txt", "073462e3fcefaae31e00edb1f18d2d02"),
        ("test.txt", "323a3554401d86e650717e2d2f942589"),
    ):
        content = (test_data / "trec" / name).read_bytes()
        assert hashlib.md5(content, usedforsecurity=False).hexdigest() == md5
        counts[name] = collections.Counter(
            line.split(" ", 1)[0] for line in content.decode("latin-1").split("\n") if line
        )
    assert set(counts["train.txt"]) == set(LABELS)
    assert set(counts["test.txt"]) <= set(LABELS)
    shown, asked = trec_questions({"trec": test_data / "trec"})
    assert (len(shown), len(asked)) == (5452, 490)
    names = collections.Counter(question.label for question in shown)
    assert names == {LABELS[code]: number for code, number in counts["train.txt"].items()}
    assert not {question.text for question in shown} & {question.text for question in asked}
    # The names fit their questions.
    for text, name in (
        ("What currency is used in Australia ?", "Currency name"),
        ("How did serfdom develop in and then leave Russia ?", "Manner of an action"),
    ):
        assert {one.label for one in shown if one.text == text} == {name}


def test_there_are_fifty_names_in_one_order():
    assert len(LABELS) == len(set(LABELS.values())) == 50
    assert set(CLASSES) == set(LABELS.values())
    assert CLASSES[:4] == ("Food", "Date", "Order, rank", "Speed")


def test_absent_files_and_lines_that_are_not_as_published_are_named(tmp_path):
    with pytest.raises(UnavailableError, match=r"'trec': got no folder of this name.*nltk_data"):
        trec_questions({})
    (tmp_path / "train.txt").write_bytes(b"NUM:date When ?\nNUM:hour When ?\n")
    with pytest.raises(UnavailableError, match=r"got no test\.txt"):
        trec_questions({"trec": tmp_path})
    (tmp_path / "test.txt").write_bytes(b"NUM:date When ?\n")
    with pytest.raises(DataError, match=r"train\.txt: line 2: got 'NUM:hour When \?'"):
        trec_questions({"trec": tmp_path})


def test_questions_are_latin_1_and_those_that_are_shown_are_not_asked(tmp_path):
    (tmp_path / "train.txt").write_bytes(b"NUM:date When was caf\xe9 new ?\nHUM:ind Who ?\n")
    (tmp_path / "test.txt").write_bytes(b"HUM:ind Who ?\nLOC:city Where ?\n")
    state_rows(tmp_path, {"train.txt": 2, "test.txt": 2})
    shown, asked = trec_questions({"trec": tmp_path})
    assert [(one.text, one.label) for one in shown] == [
        ("When was caf\xe9 new ?", "Date"),
        ("Who ?", "Individual"),
    ]
    assert [one.text for one in asked] == ["Where ?"]
